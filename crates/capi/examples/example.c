/* Makes an image, changes it, and reads it back; with a directory, mounts it there, too.
 * Usage: example IMAGE [DIRECTORY]. The image must not exist. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <userbtrfs.h>

/* The library states the same about its own types. */
_Static_assert(sizeof(userbtrfs_attributes) == 120, "layout");
_Static_assert(offsetof(userbtrfs_attributes, accessed) == 56, "layout");
_Static_assert(sizeof(userbtrfs_entry) == 280, "layout");
_Static_assert(offsetof(userbtrfs_entry, name) == 24, "layout");

/* Ends the program if a call failed, with the text of its error. */
static int64_t check(const char *call, int64_t result)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (errno %d)\n", call, userbtrfs_error(), (int)-result);
        exit(1);
    }
    return result;
}
#define CHECK(call) check(#call, call)

/* Ends the program if something is not as it must be. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char text[] = "hello from C\n";

static void fill(const char *image)
{
    userbtrfs_fs *fs;
    userbtrfs_file *file;
    userbtrfs_attributes attributes;
    CHECK(userbtrfs_open(image, USERBTRFS_WRITE, &fs));
    CHECK(userbtrfs_subvolume_create(fs, "/data", 0755));
    CHECK(userbtrfs_mkdir(fs, "/data/dir", 0700));
    CHECK(userbtrfs_file_open(fs, "/data/dir/new", USERBTRFS_CREATE | USERBTRFS_EXCLUSIVE, 0640,
                              &file));
    EXPECT(CHECK(userbtrfs_file_write(file, (const uint8_t *)text, strlen(text), 0)) ==
           (int64_t)strlen(text));
    CHECK(userbtrfs_file_sync(file));
    CHECK(userbtrfs_rename(fs, "/data/dir/new", "/data/dir/file"));
    CHECK(userbtrfs_symlink(fs, "dir/file", "/data/link"));
    CHECK(userbtrfs_snapshot(fs, "/data", "/snapshot", USERBTRFS_READ_ONLY));
    CHECK(userbtrfs_file_truncate(file, 5));
    CHECK(userbtrfs_file_stat(file, &attributes));
    EXPECT(attributes.size == 5 && attributes.links == 1);
    CHECK(userbtrfs_link(fs, "/data/dir/file", "/data/second"));
    CHECK(userbtrfs_unlink(fs, "/data/second"));
    CHECK(userbtrfs_file_close(file));
    CHECK(userbtrfs_commit(fs));

    EXPECT(userbtrfs_mkdir(fs, "/snapshot/dir2", 0755) == -EROFS);
    EXPECT(userbtrfs_rmdir(fs, "/data/dir") == -ENOTEMPTY);
    EXPECT(strcmp(userbtrfs_error(), "/data/dir: remove directory: directory not empty") == 0);
    EXPECT(userbtrfs_file_open(fs, "/none", 0, 0, &file) == -ENOENT && file == NULL);
    EXPECT(userbtrfs_mkdir(NULL, "/x", 0755) == -EINVAL);
    EXPECT(userbtrfs_mkdir(fs, NULL, 0755) == -EINVAL);
    CHECK(userbtrfs_close(fs));
}

/* A file that is open when its filesystem is closed can be used, and keeps the image open. */
static void outlive(const char *image)
{
    userbtrfs_fs *fs;
    userbtrfs_fs *other;
    userbtrfs_file *file;
    userbtrfs_attributes attributes;
    CHECK(userbtrfs_open(image, USERBTRFS_WRITE, &fs));
    CHECK(userbtrfs_file_open(fs, "/late", USERBTRFS_CREATE, 0644, &file));
    CHECK(userbtrfs_file_write(file, (const uint8_t *)text, strlen(text), 0));
    CHECK(userbtrfs_close(fs));
    EXPECT(userbtrfs_open(image, USERBTRFS_WRITE, &other) == -EBUSY);
    CHECK(userbtrfs_file_write(file, (const uint8_t *)text, strlen(text), strlen(text)));
    CHECK(userbtrfs_file_close(file));
    CHECK(userbtrfs_open(image, USERBTRFS_WRITE, &fs));
    CHECK(userbtrfs_stat(fs, "/late", &attributes));
    EXPECT(attributes.size == 2 * strlen(text));
    CHECK(userbtrfs_unlink(fs, "/late"));
    CHECK(userbtrfs_close(fs));
}

static void read_back(const char *image)
{
    userbtrfs_fs *fs;
    userbtrfs_file *file;
    userbtrfs_dir *dir;
    userbtrfs_attributes attributes;
    userbtrfs_entry entry;
    uint8_t bytes[64];
    int entries = 0;
    CHECK(userbtrfs_open(image, 0, &fs));
    EXPECT(userbtrfs_unlink(fs, "/data/link") == -EROFS);
    CHECK(userbtrfs_stat(fs, "/data/link", &attributes));
    EXPECT(attributes.size == 5 && attributes.mode == 0100640 && attributes.links == 1);
    CHECK(userbtrfs_lstat(fs, "/data/link", &attributes));
    EXPECT((attributes.mode & 0170000) == 0120000);
    EXPECT(userbtrfs_readlink(fs, "/data/link", bytes, 3) == -ERANGE);
    EXPECT(CHECK(userbtrfs_readlink(fs, "/data/link", bytes, sizeof bytes)) == 8);
    EXPECT(memcmp(bytes, "dir/file", 8) == 0);

    CHECK(userbtrfs_file_open(fs, "/snapshot/dir/file", 0, 0, &file));
    EXPECT(CHECK(userbtrfs_file_read(file, bytes, sizeof bytes, 0)) == (int64_t)strlen(text));
    EXPECT(memcmp(bytes, text, strlen(text)) == 0);
    EXPECT(CHECK(userbtrfs_file_read(file, bytes, sizeof bytes, 100)) == 0);
    CHECK(userbtrfs_file_close(file));

    CHECK(userbtrfs_dir_open(fs, "/data", &dir));
    while (CHECK(userbtrfs_dir_next(dir, &entry))) {
        printf("%6o %s\n", entry.kind, entry.name);
        EXPECT(strlen(entry.name) == entry.name_len);
        entries++;
    }
    EXPECT(entries == 2);
    CHECK(userbtrfs_dir_close(dir));
    CHECK(userbtrfs_close(fs));
}

static void mount(const char *image, const char *directory)
{
    userbtrfs_fs *fs;
    userbtrfs_mounted *mounted;
    userbtrfs_attributes attributes;
    char path[4096];
    FILE *file;
    CHECK(userbtrfs_open(image, USERBTRFS_WRITE, &fs));
    EXPECT(userbtrfs_mount(fs, image, "/none/none", &mounted) == -ENOENT && mounted == NULL);
    CHECK(userbtrfs_mount(fs, image, directory, &mounted));
    EXPECT((size_t)snprintf(path, sizeof path, "%s/data/mounted", directory) < sizeof path);
    file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fflush(file) == 0);
    EXPECT(userbtrfs_unmount(mounted) == -EBUSY);
    EXPECT(fclose(file) == 0);
    CHECK(userbtrfs_unmount(mounted));
    CHECK(userbtrfs_mount_wait(mounted));
    CHECK(userbtrfs_mount_close(mounted));
    CHECK(userbtrfs_stat(fs, "/data/mounted", &attributes));
    EXPECT(attributes.size == strlen(text));
    CHECK(userbtrfs_close(fs));
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s IMAGE [DIRECTORY]\n", argv[0]);
        return 2;
    }
    CHECK(userbtrfs_mkfs(argv[1], 128 << 20, "from C", 0));
    EXPECT(userbtrfs_mkfs(argv[1], 128 << 20, NULL, 0) == -EEXIST);
    EXPECT(userbtrfs_mkfs(argv[1], 0, NULL, 0) == -EEXIST);
    EXPECT(userbtrfs_mkfs("/none/none", 0, NULL, 0) == -ENOENT);
    EXPECT(userbtrfs_mkfs("/dev/null", 0, NULL, 0) == -EINVAL);
    fill(argv[1]);
    outlive(argv[1]);
    read_back(argv[1]);
    if (argc == 3)
        mount(argv[1], argv[2]);
    return 0;
}
