/*
 * Makes btrfs-progs take a mount of userbtrfs for one of Linux's btrfs.
 *
 *     cc -shared -fPIC -o btrfs-preload.so scripts/btrfs-preload.c -ldl
 *     LD_PRELOAD=$PWD/btrfs-preload.so btrfs subvolume create mnt/new
 *
 * The tools recognize btrfs by three things that FUSE does not let a server set, and use an ioctl
 * of which FUSE passes only a part. For mounts of userbtrfs, and for nothing else, this library
 * replaces them:
 *
 * 1. the type that statfs(2) returns;
 * 2. the inode number of the root directory of a subvolume, 256 in Linux: in a mount it contains
 *    the number of the subvolume, too;
 * 3. the type in the table of mounts;
 * 4. the number of BTRFS_IOC_SPACE_INFO: FUSE passes as many bytes as it encodes, which are those
 *    of its argument without the entries. The server takes a number that encodes all of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { NUMBER_BITS = 40, SUBVOLUME_ROOT = 256 };
static const long FUSE_TYPE = 0x65735546;
static const long BTRFS_TYPE = 0x9123683e;
/* BTRFS_IOC_FS_INFO */
static const unsigned long FS_INFO = 0x8400941f;
/* BTRFS_IOC_SPACE_INFO, the sizes of its argument, and the largest size that a number encodes */
static const unsigned long SPACE_INFO = 0xc0109414;
enum { SPACE_HEAD = 16, SPACE_ENTRY = 24, SIZE_MAX_ENCODED = (1 << 14) - 1, SIZE_SHIFT = 16 };

#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* Returns true if an open file is in a filesystem of FUSE. */
static int is_of_fuse(int file)
{
	struct statfs found;

	return NEXT(fstatfs)(file, &found) == 0 && found.f_type == FUSE_TYPE;
}

int ioctl(int file, unsigned long number, ...)
{
	va_list list;
	void *argument;

	va_start(list, number);
	argument = va_arg(list, void *);
	va_end(list);
	if (number == SPACE_INFO && argument && is_of_fuse(file)) {
		uint64_t slots = *(const uint64_t *)argument;

		if (slots > 0 && slots <= (SIZE_MAX_ENCODED - SPACE_HEAD) / SPACE_ENTRY)
			number += (slots * SPACE_ENTRY) << SIZE_SHIFT;
	}
	return NEXT(ioctl)(file, number, argument);
}

/* Returns true if an open file is in a filesystem that answers as btrfs. */
static int answers(int file)
{
	char info[1024];

	return ioctl(file, FS_INFO, info) == 0;
}

static int answers_at(int dir, const char *path)
{
	int file = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int result = file >= 0 && answers(file);

	if (file >= 0)
		close(file);
	return result;
}

int statfs(const char *path, struct statfs *result)
{
	int error = NEXT(statfs)(path, result);

	if (error == 0 && result->f_type == FUSE_TYPE && answers_at(AT_FDCWD, path))
		result->f_type = BTRFS_TYPE;
	return error;
}

int fstatfs(int file, struct statfs *result)
{
	int error = NEXT(fstatfs)(file, result);

	if (error == 0 && result->f_type == FUSE_TYPE && answers(file))
		result->f_type = BTRFS_TYPE;
	return error;
}

/* Returns true if an inode may be the root directory of a subvolume that is not the mounted one. */
static int may_be_root(const struct stat *result)
{
	uint64_t number = result->st_ino & ((UINT64_C(1) << NUMBER_BITS) - 1);

	return S_ISDIR(result->st_mode) && number == SUBVOLUME_ROOT && number != result->st_ino;
}

int stat(const char *path, struct stat *result)
{
	int error = NEXT(stat)(path, result);

	if (error == 0 && may_be_root(result) && answers_at(AT_FDCWD, path))
		result->st_ino = SUBVOLUME_ROOT;
	return error;
}

int fstat(int file, struct stat *result)
{
	int error = NEXT(fstat)(file, result);

	if (error == 0 && may_be_root(result) && answers(file))
		result->st_ino = SUBVOLUME_ROOT;
	return error;
}

int fstatat(int dir, const char *path, struct stat *result, int flags)
{
	int error = NEXT(fstatat)(dir, path, result, flags);

	if (error == 0 && may_be_root(result) && answers_at(dir, path))
		result->st_ino = SUBVOLUME_ROOT;
	return error;
}

struct mntent *getmntent(FILE *table)
{
	static char btrfs[] = "btrfs";
	struct mntent *entry = NEXT(getmntent)(table);

	if (entry && (strcmp(entry->mnt_type, "fuse.userbtrfs") == 0 ||
		      strcmp(entry->mnt_type, "fuseblk.userbtrfs") == 0))
		entry->mnt_type = btrfs;
	return entry;
}
