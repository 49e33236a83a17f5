# What clients of a file server do.
needs dbench
phase load
if [ $SCALE = 1 ]; then
    dbench -t 20 -D . 10
else
    dbench -t 60 -D . 64
fi
