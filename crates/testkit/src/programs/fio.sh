# Random writes that are read and verified: by calls, past the cache, and mapped.
needs fio
phase load
fio --minimal --directory=. --size=$((24 * SCALE))M --rw=randwrite --verify=crc32c \
    --verify_fatal=1 --fallocate=none --aux-path="$OUTSIDE" \
    --name=calls --ioengine=psync --bs=8k --fsync=64 \
    --name=direct --ioengine=libaio --iodepth=16 --direct=1 --bs=4k \
    --name=mapped --ioengine=mmap --bs=4k
