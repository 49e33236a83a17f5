//! The command as a helper of mount(8) and umount(8): called as
//! `mount.fuse.userbtrfs IMAGE DIR -o OPTS`, as mount(8) does for `-t fuse.userbtrfs` and for a
//! line of `/etc/fstab`, and as `umount.fuse.userbtrfs DIR`, as umount(8) does for such a mount.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The task for which the command was called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// The command with these arguments, the first one its name.
    Command(Vec<OsString>),
    /// No action, for `mount -f`.
    Nothing,
}

/// Translates the arguments with which the command was called.
pub(crate) fn arguments(given: impl Iterator<Item = OsString>) -> Invocation {
    let given: Vec<_> = given.collect();
    let is_called = |prefix| given.first().is_some_and(|name| has_prefix(name, prefix));
    if is_called("mount.") {
        translate(&given[1..])
    } else if is_called("umount.") {
        Invocation::Command(translate_umount(&given[1..]))
    } else {
        Invocation::Command(given)
    }
}

fn has_prefix(name: &OsStr, prefix: &str) -> bool {
    let file = Path::new(name).file_name();
    file.is_some_and(|file| file.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

/// Returns the letters of an argument that is one or more short options.
fn short_options(argument: &OsStr) -> Option<&str> {
    let letters = argument.to_str()?.strip_prefix('-')?;
    (!letters.is_empty() && !letters.starts_with('-')).then_some(letters)
}

/// Returns the value of a short option: the rest of its argument, or the next argument.
fn value<'a>(rest: &str, given: &mut impl Iterator<Item = &'a OsString>) -> Option<OsString> {
    if rest.is_empty() { given.next().cloned() } else { Some(rest.into()) }
}

/// Translates arguments of umount(8) to those of the verb; drops `-n`, `-r` and `-t TYPE`.
fn translate_umount(given: &[OsString]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["userbtrfs".into(), "umount".into()];
    let mut given = given.iter();
    while let Some(argument) = given.next() {
        let Some(letters) = short_options(argument) else {
            arguments.push(argument.clone());
            continue;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                'n' | 'r' => {}
                't' => {
                    value(&letters[at + 1..], &mut given);
                    break;
                }
                other => arguments.push(format!("-{other}").into()),
            }
        }
    }
    arguments
}

/// Translates arguments of mount(8) to those of the verb.
fn translate(given: &[OsString]) -> Invocation {
    let mut arguments: Vec<OsString> = vec!["userbtrfs".into(), "mount".into()];
    let mut paths = Vec::new();
    let mut given = given.iter();
    while let Some(argument) = given.next() {
        if argument.as_encoded_bytes().starts_with(b"--") {
            arguments.push(argument.clone());
            continue;
        }
        let Some(letters) = short_options(argument) else {
            paths.push(argument.clone());
            continue;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                'f' => return Invocation::Nothing,
                'v' => arguments.push("--verbose".into()),
                's' => arguments.push("--sloppy".into()),
                'o' => {
                    arguments.push("--options".into());
                    arguments.extend(value(&letters[at + 1..], &mut given));
                    break;
                }
                // The type is known. A namespace (`N`) is refused: it would have to be entered.
                't' => {
                    value(&letters[at + 1..], &mut given);
                    break;
                }
                'n' => {}
                other => arguments.push(format!("-{other}").into()),
            }
        }
    }
    arguments.push("--".into());
    arguments.extend(paths);
    Invocation::Command(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(words: &str) -> Invocation {
        arguments(words.split(' ').map(OsString::from))
    }

    fn command(words: &str) -> Invocation {
        Invocation::Command(words.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn arguments_of_mount_become_those_of_the_verb() {
        let given = "/sbin/mount.fuse.userbtrfs disk.img /mnt -sv -o rw,nosuid -t fuse.userbtrfs";
        let verb = "userbtrfs mount --sloppy --verbose --options rw,nosuid -- disk.img /mnt";
        assert_eq!(called(given), command(verb));
        assert_eq!(called("mount.userbtrfs a b -x"), command("userbtrfs mount -x -- a b"));
        assert_eq!(called("mount.userbtrfs a b -nf"), Invocation::Nothing);
        let read_only = command("userbtrfs mount --verbose --options ro -- a b");
        assert_eq!(called("mount.userbtrfs a b -voro -tfuse.userbtrfs"), read_only);
        assert_eq!(called("mount.userbtrfs --help"), command("userbtrfs mount --help --"));
        let in_another = "userbtrfs mount -N -- a b /proc/7/ns/mnt";
        assert_eq!(called("mount.userbtrfs a b -N /proc/7/ns/mnt"), command(in_another));
    }

    #[test]
    fn arguments_of_umount_become_those_of_the_verb() {
        let given = "/sbin/umount.fuse.userbtrfs /mnt -n -v -r -t fuse.userbtrfs";
        assert_eq!(called(given), command("userbtrfs umount /mnt -v"));
        assert_eq!(called("umount.fuseblk.userbtrfs /a -l"), command("userbtrfs umount /a -l"));
        let joined = "umount.fuse.userbtrfs /a -nf -tfuse.userbtrfs -rvt fuse.userbtrfs --lazy";
        assert_eq!(called(joined), command("userbtrfs umount /a -f -v --lazy"));
    }

    #[test]
    fn other_names_change_nothing() {
        let given = "/usr/bin/userbtrfs mount -f disk.img /mnt";
        assert_eq!(called(given), command(given));
    }
}
