/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * userbtrfs: btrfs in user space, for programs in C. docs/c.md is the guide.
 *
 * A function returns 0 or a count, or the negative errno of its error; userbtrfs_error() then has
 * the text. NULL for a handle, a string or the place of a result is EINVAL. An error in the library
 * itself is EIO.
 *
 * A handle is opaque, and valid until the function that ends it is called, whatever that returns.
 * A handle that was ended, or one of another type, must not
 * be passed: that is undefined, as for a pointer after free(). No call may use a handle while
 * another one ends it. Handles of filesystems, files and mounts may be used from any number of
 * threads at the same time; one of a directory from one at a time.
 *
 * The library copies each string and each buffer that it is passed, and keeps no pointer to it after
 * the call; what it stores is the caller's. A buffer to read into may be overwritten up to its full
 * length. Two arguments of one call must not overlap if one of them is written.
 *
 * Paths in an image are absolute bytes that end with NUL, in any encoding; other paths are those of
 * the host. Without a word about it, symbolic links at the end of a path are followed as by the
 * system call of the same name. After fork() the child may not use a handle.
 */
#ifndef USERBTRFS_H
#define USERBTRFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct userbtrfs_fs userbtrfs_fs;
typedef struct userbtrfs_file userbtrfs_file;
typedef struct userbtrfs_dir userbtrfs_dir;
typedef struct userbtrfs_mounted userbtrfs_mounted;

/* Flags of userbtrfs_open. */
#define USERBTRFS_WRITE 1u
/* Flags of userbtrfs_file_open. */
#define USERBTRFS_CREATE 1u
#define USERBTRFS_EXCLUSIVE 2u /* with USERBTRFS_CREATE: the file must not exist */
#define USERBTRFS_TRUNCATE 4u
/* Flags of userbtrfs_mkfs. */
#define USERBTRFS_FORCE 1u
/* Flags of userbtrfs_snapshot. */
#define USERBTRFS_READ_ONLY 1u

typedef struct userbtrfs_time {
    int64_t seconds; /* since 1970, negative before */
    uint32_t nanoseconds;
    uint32_t reserved;
} userbtrfs_time;

typedef struct userbtrfs_attributes {
    uint64_t inode;
    uint64_t subvolume;
    uint64_t size;
    uint64_t allocated; /* bytes of extents, before compression */
    uint32_t mode;      /* type and permissions, as st_mode */
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    uint32_t device_major; /* of a device file */
    uint32_t device_minor;
    userbtrfs_time accessed;
    userbtrfs_time modified;
    userbtrfs_time changed;
    userbtrfs_time created;
} userbtrfs_attributes;

typedef struct userbtrfs_entry {
    uint64_t inode;
    uint64_t subvolume;
    uint32_t kind; /* the type bits of st_mode, 0 if unknown */
    uint32_t name_len;
    char name[256]; /* ends with NUL */
} userbtrfs_entry;

/* Returns the text of the last error of this thread; valid until its next error. */
const char *userbtrfs_error(void);

/* Makes a filesystem. With a size a new file of that many bytes is made (EEXIST if it exists), with
 * 0 the existing file or device is used (EEXIST if it has content, without USERBTRFS_FORCE). The
 * label may be NULL. */
int userbtrfs_mkfs(const char *image, uint64_t size, const char *label, uint32_t flags);

/* Opens an image file or a block device. Without USERBTRFS_WRITE nothing is written to it. */
int userbtrfs_open(const char *image, uint32_t flags, userbtrfs_fs **fs);
/* Makes all changes durable, atomically. */
int userbtrfs_commit(const userbtrfs_fs *fs);
/* Makes all changes durable, also those of open files, and ends the handle. The image stays open and
 * locked until the handles of its files, directories and mounts are ended too: until then these can
 * be used, also for changes. */
int userbtrfs_close(userbtrfs_fs *fs);

/* Opens a file; `mode` has the permissions of a new one. */
int userbtrfs_file_open(const userbtrfs_fs *fs, const char *path, uint32_t flags, uint32_t mode,
                        userbtrfs_file **file);
/* Reads at an offset; returns the count, 0 at the end of the file. */
int64_t userbtrfs_file_read(const userbtrfs_file *file, uint8_t *target, size_t len,
                            uint64_t offset);
/* Writes at an offset; returns the count, which may be less than `len`. */
int64_t userbtrfs_file_write(const userbtrfs_file *file, const uint8_t *source, size_t len,
                             uint64_t offset);
int userbtrfs_file_truncate(const userbtrfs_file *file, uint64_t size);
int userbtrfs_file_stat(const userbtrfs_file *file, userbtrfs_attributes *stat);
/* Makes the file durable, with its name if that is new, as fsync(2). */
int userbtrfs_file_sync(const userbtrfs_file *file);
/* Ends the handle; returns an error if data could not be written, which no call returned so far. If
 * it is the last handle of the image, closes that as userbtrfs_close does. */
int userbtrfs_file_close(userbtrfs_file *file);

int userbtrfs_dir_open(const userbtrfs_fs *fs, const char *path, userbtrfs_dir **dir);
/* Stores the next entry and returns 1, or 0 after the last. `.` and `..` are not listed. After an
 * error the listing goes on behind what could not be read. */
int64_t userbtrfs_dir_next(userbtrfs_dir *dir, userbtrfs_entry *entry);
int userbtrfs_dir_close(userbtrfs_dir *dir);

int userbtrfs_stat(const userbtrfs_fs *fs, const char *path, userbtrfs_attributes *stat);
int userbtrfs_lstat(const userbtrfs_fs *fs, const char *path, userbtrfs_attributes *stat);
int userbtrfs_mkdir(const userbtrfs_fs *fs, const char *path, uint32_t mode);
int userbtrfs_rmdir(const userbtrfs_fs *fs, const char *path);
int userbtrfs_unlink(const userbtrfs_fs *fs, const char *path);
int userbtrfs_rename(const userbtrfs_fs *fs, const char *from, const char *to);
/* Adds the name `to` to the file at `from`, which is no directory. A symbolic link is not followed. */
int userbtrfs_link(const userbtrfs_fs *fs, const char *from, const char *to);
int userbtrfs_symlink(const userbtrfs_fs *fs, const char *target, const char *path);
/* Stores the target without a NUL and returns its length; ERANGE if it is longer than `len`. */
int64_t userbtrfs_readlink(const userbtrfs_fs *fs, const char *path, uint8_t *target, size_t len);

int userbtrfs_subvolume_create(const userbtrfs_fs *fs, const char *path, uint32_t mode);
int userbtrfs_subvolume_delete(const userbtrfs_fs *fs, const char *path);
/* Makes a snapshot of the subvolume at `source`. It is durable when this returns. */
int userbtrfs_snapshot(const userbtrfs_fs *fs, const char *source, const char *path,
                       uint32_t flags);

/* Mounts by FUSE; threads of this process serve the mount until it is unmounted, so it has to be
 * before the process ends. `source` is shown in the mount table. The filesystem may be used and
 * closed as well. */
int userbtrfs_mount(const userbtrfs_fs *fs, const char *source, const char *directory,
                    userbtrfs_mounted **mount);
/* Unmounts; EBUSY if the mount is in use. The handle remains valid, whatever is returned. */
int userbtrfs_unmount(const userbtrfs_mounted *mount);
/* Waits until the mount is removed from each place that it has, by userbtrfs_unmount in another
 * thread or by umount(8). */
int userbtrfs_mount_wait(const userbtrfs_mounted *mount);
/* Waits as userbtrfs_mount_wait does, makes all changes durable, and ends the handle. */
int userbtrfs_mount_close(userbtrfs_mounted *mount);

#ifdef __cplusplus
}
#endif

#endif
