# What was durable is there with all that it needs, and nothing that has its name is torn.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
holds() {
    # What git changes without syncing it.
    echo 'ref: refs/heads/main' >$1/HEAD
    rm -f $1/config $1/index
    git --git-dir=$1 fsck --full --strict --no-reflogs
    git --git-dir=$1 merge-base --is-ancestor $2 main
}
test ! -s "$OUTSIDE/origin" || holds origin $(cat "$OUTSIDE/origin")
test ! -s "$OUTSIDE/commits" || holds clone/.git $(tail -n 1 "$OUTSIDE/commits")
