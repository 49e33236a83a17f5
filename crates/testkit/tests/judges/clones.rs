//! Files that share extents: made by Linux and changed by us, and cut off while we make them.
//!
//! 1. We change some of the files that share extents, and the others stay as they are. Linux and we
//!    show the same of the image, and `btrfs check` accepts it.
//! 2. A cut of a clone leaves the target as it was, or cloned up to some point, and the source
//!    whole.
//! 3. When all files are deleted, the space that they had is free.

use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::Options;
use userbtrfs::{Deduped, Dir, Filesystem, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::{pattern, skip_unless_linux, stories};

use super::cut_states::judge_prefixes;
use super::made::{MIB, Made, check_file, kinds};
use super::ours::{judge_by_linux, use_by_linux};
use super::{is_torture, open_device, open_to_write};

const KIB: u64 = 1024;

/// Linux's files: each is cloned to a file whose name has `2` behind, and some in part to `parts`.
const BY_LINUX: &str = r#"
set -e
cd "$1"
head -c 300000 /dev/urandom >plain
truncate -s 1m sparse; head -c 8192 /dev/urandom | dd of=sparse bs=4k seek=100 conv=notrunc
fallocate -l 512k ahead; head -c 65536 /dev/urandom | dd of=ahead bs=4k seek=8 conv=notrunc
printf small >inline
touch nocow nocow2; chattr +C nocow nocow2; head -c 262144 /dev/urandom >nocow
yes text | head -c 500000 >packed; btrfs property set packed compression zstd
btrfs filesystem defragment -czstd packed; sync
for file in plain sparse ahead inline nocow packed; do cp --reflink=always $file ${file}2; done
btrfs subvolume create sub; cp --reflink=always plain packed sub
sync
"#;

fn open_image(image: &Path, options: &mut OpenOptions) -> Filesystem {
    options.subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20).open(image).unwrap()
}

fn writable(image: &Path) -> Filesystem {
    open_image(image, OpenOptions::new().write(true))
}

/// Changes one of two files of each pair, and shares more of their extents.
fn change(fs: &Filesystem) {
    for name in ["plain", "sparse", "ahead", "nocow", "packed"] {
        let file = fs.open_file(name).unwrap();
        let twin = fs.open_file(format!("{name}2")).unwrap();
        let mut ours = file.read_all().unwrap();
        let theirs = twin.read_all().unwrap();
        assert!(ours == theirs, "{name}: as cloned by Linux");
        let bytes = pattern::bytes(7, 0, 10_000);
        file.write_all_at(&bytes, 50_000).unwrap();
        ours[50_000..60_000].copy_from_slice(&bytes);
        // A part of what Linux cloned, to another place of the same file, and to another file.
        file.clone_range(&file, 0, 64 * KIB, 192 * KIB).unwrap();
        let copied = ours[..64 << 10].to_vec();
        ours[192 << 10..256 << 10].copy_from_slice(&copied);
        assert!(file.read_all().unwrap() == ours && twin.read_all().unwrap() == theirs, "{name}");
        if name != "nocow" {
            let more = fs.root().create(format!("{name}3").as_bytes(), 0o644).unwrap();
            let more = more.open().unwrap();
            more.clone_range(&twin, 0, 0, 8 * KIB).unwrap();
            let same = more.dedupe_range(&twin, 0, 64 * KIB, 8 * KIB).unwrap();
            assert_eq!(same, Deduped::Same { len: 64 * KIB, shared: 0 }, "{name}");
            assert!(more.read_all().unwrap()[8 << 10..] == theirs, "{name}");
        }
        fs.commit().unwrap();
        assert!(file.read_all().unwrap() == ours && twin.read_all().unwrap() == theirs, "{name}");
    }
    // Across subvolumes, and of inline data.
    let sub = fs.open_file("sub/packed").unwrap();
    let inline = fs.open_file("inline").unwrap();
    sub.clone_range(&fs.open_file("plain2").unwrap(), 0, 128 * KIB, 64 * KIB).unwrap();
    sub.clone_range(&inline, 0, 0, 500 * KIB).unwrap();
    fs.clone_file("inline", "inline3").unwrap();
    assert!(fs.read("inline3").unwrap() == b"small" && fs.read("inline2").unwrap() == b"small");
}

#[test]
fn clones_of_linux_are_changed_by_us_and_handed_back() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let made = Made::new("default", 512 * MIB, Options::default());
    made.image().write_to(&image).unwrap();
    let mount = linux.mount(&image, "noatime,subvolid=5").unwrap();
    run(Command::new("sh").args(["-c", BY_LINUX, "sh"]).arg(mount.path())).unwrap();
    drop(mount);
    let fs = writable(&image);
    change(&fs);
    fs.close().unwrap();
    check_file("changed", &image);
    judge_by_linux(&linux, "changed", &image);
    use_by_linux(&linux, "changed", &image);
    let fs = writable(&image);
    for entry in fs.root().entries().map(Result::unwrap).collect::<Vec<_>>() {
        if entry.name() != b"sub" {
            fs.remove_file(entry.name()).unwrap();
        }
    }
    for name in ["plain", "packed"] {
        fs.remove_file(format!("sub/{name}")).unwrap();
    }
    fs.close().unwrap();
    check_file("emptied", &image);
    let fs = open_image(&image, &mut OpenOptions::new());
    let usage = fs.usage().unwrap();
    let used: u64 = usage.kinds.iter().filter(|kind| is_data(kind.flags)).map(|it| it.used).sum();
    assert_eq!(used, 0, "all data is free");
    linux.assert_no_complaints().unwrap();
}

fn is_data(flags: userbtrfs_format::BlockGroupFlags) -> bool {
    flags.contains(userbtrfs_format::BlockGroupFlags::DATA)
}

#[test]
fn files_of_two_subvolumes_that_share_new_extents_are_logged_each() {
    skip_unless_linux!();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    Made::new("default", 256 * MIB, Options::default()).image().write_to(&image).unwrap();
    {
        let linux = Linux::lock().unwrap();
        let mount = linux.mount(&image, "noatime,subvolid=5").unwrap();
        let made = mount.path().join("sub");
        run(Command::new("btrfs").args(["subvolume", "create"]).arg(made)).unwrap();
    }
    let device = Arc::new(RecordingDevice::on(&SparseImage::from_file(&image).unwrap()));
    let fs = open_to_write(device.clone());
    let sub = fs.open_dir("sub").unwrap();
    let file = |dir: &Dir, name: &[u8]| dir.create(name, 0o644).unwrap().open().unwrap();
    let a = file(&fs.root(), b"a");
    let b = file(&sub, b"b");
    fs.commit().unwrap();
    let before = fs.stats().log.log_commits;
    a.write_all_at(&pattern::bytes(1, 0, 256 << 10), 0).unwrap();
    b.clone_range(&a, 0, 128 * KIB, 0).unwrap();
    b.clone_range(&a, 100 * KIB, 100 * KIB, 64 * KIB).unwrap();
    b.sync_all().unwrap();
    a.write_all_at(&pattern::bytes(2, 0, 20_000), 50_000).unwrap();
    a.clone_range(&b, 0, 64 * KIB, 300 * KIB).unwrap();
    a.sync_all().unwrap();
    b.clone_range(&b, 0, 32 * KIB, 400 * KIB).unwrap();
    b.sync_all().unwrap();
    assert_eq!(fs.stats().log.log_commits, before + 3, "all syncs are log commits");
    let expected = [a.read_all().unwrap(), b.read_all().unwrap()];
    let cut = Time::now();
    drop((a, b));
    fs.abandon();
    let end = device.recording().end();
    let opened = open_device(Arc::new(end.to_device())).unwrap();
    assert!([opened.read("a").unwrap(), opened.read("sub/b").unwrap()] == expected);
    drop(opened);
    let by_linux = stories::judge_by_linux(&Linux::lock().unwrap(), &end).unwrap();
    let by_us = stories::judge_by_us(&end).unwrap();
    assert_eq!(by_linux.differences_of_judges(&by_us, cut), [""; 0]);
}

#[test]
fn cut_of_a_clone_leaves_a_prefix_of_it() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for made in kinds().into_iter().take(if is_torture() { 9 } else { 2 }) {
        let base = made.image();
        let device = Arc::new(RecordingDevice::on(&base));
        let fs = open_to_write(device.clone());
        let file = |name: &str| fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        let source = file("source");
        let target = file("target");
        // Many extents: every second sector.
        for at in (0..1500).map(|number| number * 8 * KIB) {
            source.write_all_at(&pattern::bytes(1, at, 4096), at).unwrap();
        }
        let old = pattern::bytes(2, 0, 5 << 20);
        target.write_all_at(&old, 0).unwrap();
        fs.commit().unwrap();
        let new = source.read_all().unwrap();
        let begin = device.count();
        target.clone_range(&source, 0, 0, 0).unwrap();
        target.sync_all().unwrap();
        source.clone_range(&source, 0, MIB, 16 * MIB).unwrap();
        fs.commit().unwrap();
        drop((source, target));
        fs.abandon();
        let step = if is_torture() { 1 } else { 7 };
        judge_prefixes(&linux, made.name, &device, begin, step, |what, opened| {
            let found = opened.read("target").unwrap();
            let cloned = found.iter().zip(&new).take_while(|(a, b)| a == b).count();
            let rest = found.get(cloned / 4096 * 4096..).unwrap_or_default();
            let is_prefix = found == new || found == old || old.ends_with(rest);
            assert!(is_prefix && found.len() >= old.len().min(new.len()), "{what}");
            assert!(opened.read("source").unwrap()[..new.len()] == new, "{what}");
        });
    }
}

/// The files were opened before. Linux refuses the clone, and makes the dedupe: we refuse both.
#[test]
fn read_only_subvolume_gets_no_shared_extents() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    Made::new("default", 256 * MIB, Options::default()).image().write_to(&image).unwrap();
    let bytes = pattern::bytes(1, 0, 64 << 10);
    {
        let mount = linux.mount(&image, "").unwrap();
        let at = |path: &str| mount.path().join(path);
        run(Command::new("btrfs").args(["subvolume", "create"]).arg(at("sub"))).unwrap();
        std::fs::write(at("source"), &bytes).unwrap();
        std::fs::write(at("sub/target"), &bytes).unwrap();
        let source = std::fs::File::open(at("source")).unwrap();
        let target = std::fs::File::options().write(true).open(at("sub/target")).unwrap();
        run(Command::new("btrfs").args(["property", "set"]).arg(at("sub")).args(["ro", "true"]))
            .unwrap();
        let cloned = rustix::fs::ioctl_ficlone(&target, &source);
        assert_eq!(cloned, Err(rustix::io::Errno::ROFS));
        run(Command::new("btrfs").args(["property", "set"]).arg(at("sub")).args(["ro", "false"]))
            .unwrap();
    }
    let fs = writable(&image);
    let source = fs.open_file("source").unwrap();
    let target = fs.open_file("sub/target").unwrap();
    let id = fs.lookup("sub").unwrap().id().subvolume;
    let extents = || format!("{:?}", target.extents().unwrap());
    let before = extents();
    fs.set_subvolume_read_only(id, true).unwrap();
    for result in [
        target.clone_range(&source, 0, 0, 0).map(drop),
        target.clone_range(&source, 0, 4096, 1 << 20).map(drop),
        target.dedupe_range(&source, 0, 64 * KIB, 0).map(drop),
    ] {
        let errno = result.unwrap_err().errno();
        assert_eq!(errno, rustix::io::Errno::ROFS.raw_os_error());
    }
    assert_eq!(extents(), before);
    assert!(target.read_all().unwrap() == bytes);
    fs.set_subvolume_read_only(id, false).unwrap();
    target.clone_range(&source, 0, 0, 0).unwrap();
    assert_ne!(extents(), before);
    drop((source, target));
    fs.close().unwrap();
    check_file("read-only", &image);
}
