# A repository with a history: cloned, checked, changed and packed.
needs git
commits=$((300 * SCALE))
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null

awk -v commits=$commits 'BEGIN {
    for (n = 1; n <= commits; n++) {
        text = ""
        for (line = 0; line < 1 + n % 40; line++) text = text "line " line " of " n "\n"
        print "commit refs/heads/main\ncommitter a <a@b> " 1600000000 + n " +0000"
        print "data 2\nx\nM 100644 inline d" n % 7 "/f" n % 61
        print "data " length(text) "\n" text
    }
}' >"$OUTSIDE/history"
git init -q --bare -b main origin
git -C origin fast-import --quiet <"$OUTSIDE/history"

git clone -q --no-local origin clone
cd clone
git config core.fsync all
git config user.email a@b
git config user.name a
test "$(git rev-list --count main)" = $commits
git fsck --full --strict
git checkout -q HEAD~$((commits / 2))
git checkout -q main
for n in $(seq 20); do
    echo "more $n" >>d1/f1
    git commit -q -am "more $n"
done
git gc -q --prune=now
git fsck --full --strict
test -z "$(git status --porcelain)"
test "$(git rev-list --count main)" = $((commits + 20))
git diff --quiet HEAD~20 origin/main
cd ..
rm -rf origin
