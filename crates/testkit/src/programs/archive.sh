# A tree with all that a tree can have: out into an archive, in again, and copied; then a second
# copy has nothing to do.
needs tar rsync setfattr getfattr setfacl
phase make
mkdir tree
cd tree
for n in $(seq $((200 * SCALE))); do
    mkdir -p d$((n % 13))
    head -c $((n * n % 70000)) /dev/urandom >d$((n % 13))/f$n
    test $((n % 10)) != 0 || setfattr -n user.number -v $n d$((n % 13))/f$n
done
echo x >a
ln a b
ln -s a c
mkfifo p
mknod null c 1 3
mkdir -m 1777 d
truncate -s 1M hole
echo end >>hole
setfacl -m u:7:rw a
chmod 4711 d1/f1
chown 7:8 d1/f14
chown -h 7:8 c
touch -d '1969-12-31 23:00 UTC' d
cd ..

phase out
tar --xattrs --acls --sparse -cf out.tar tree
durable out.tar
phase in
mkdir in
tar --xattrs --xattrs-include='*' --acls -xf out.tar -C in
phase compare
shown() {
    cd "$1"
    find . -printf '%p %y %m %n %s %U %G %T@ %l\n' | sort
    find . -type f -exec sha256sum {} + | sort
    getfattr -hdR -m - . | sort
    cd "$OLDPWD"
}
shown tree >"$OUTSIDE/tree"
shown in/tree >"$OUTSIDE/in"
cmp "$OUTSIDE/tree" "$OUTSIDE/in"

phase copy
# By seconds alone it would leave the time of a directory that it made in the same one. Without a
# timeout its processes may wait for each other for ever once every file fails.
rsync -aHAX --timeout=120 --fsync --modify-window=-1 --delete tree/ copy/
# The paths have no spaces.
durable $(find copy -type f)
phase 'copy again'
test -z "$(rsync -aHAXi --timeout=120 --modify-window=-1 --delete tree/ copy/)"
shown copy >"$OUTSIDE/copy"
cmp "$OUTSIDE/tree" "$OUTSIDE/copy"
