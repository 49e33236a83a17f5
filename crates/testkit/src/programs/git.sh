# A repository with a history: cloned, checked, changed and packed. git syncs what a history is made
# of, but no directory that has the names. What is durable with these stands in $OUTSIDE: the commit
# of the first repository in origin, and those of the clone in commits, a line each.
needs git
commits=$((300 * SCALE))
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsync GIT_CONFIG_VALUE_0=all

awk -v commits=$commits 'BEGIN {
    for (n = 1; n <= commits; n++) {
        text = ""
        for (line = 0; line < 1 + n % 40; line++) text = text "line " line " of " n "\n"
        print "commit refs/heads/main\ncommitter a <a@b> " 1600000000 + n " +0000"
        print "data 2\nx\nM 100644 inline d" n % 7 "/f" n % 61
        print "data " length(text) "\n" text
    }
}' >"$OUTSIDE/history"
phase import
git init -q --bare -b main origin
git -C origin fast-import --quiet <"$OUTSIDE/history"
find origin -exec sync {} +
git -C origin rev-parse main >"$OUTSIDE/origin"

phase clone
git clone -q --no-local origin clone
cd clone
find .git -exec sync {} +
git rev-parse main >"$OUTSIDE/commits"
phase check
git config user.email a@b
git config user.name a
test "$(git rev-list --count main)" = $commits
git fsck --full --strict
phase checkout
git checkout -q HEAD~$((commits / 2))
git checkout -q main
phase commit
for n in $(seq 20); do
    touch "$OUTSIDE/before"
    echo "more $n" >>d1/f1
    git commit -q -am "more $n"
    find .git -newer "$OUTSIDE/before" -exec sync {} +
    git rev-parse main >>"$OUTSIDE/commits"
done
phase gc
git gc -q --prune=now
phase 'check again'
git fsck --full --strict
test -z "$(git status --porcelain)"
test "$(git rev-list --count main)" = $((commits + 20))
git diff --quiet HEAD~20 origin/main
cd ..
phase remove
rm "$OUTSIDE/origin"
rm -rf origin
