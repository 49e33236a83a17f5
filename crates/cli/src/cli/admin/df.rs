//! `df` of a mount: the use of space as df(1) shows it.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use rustix::fs::statvfs;
use serde_json::json;
use userbtrfs::Quoted;
use userbtrfs::mount::control::{self, AskError};

use crate::cli::args::{DfArgs, Format, Global};
use crate::cli::host::image::{ImageArgs, holds_one_btrfs};
use crate::cli::output::{print_json, stdout, with_name};
use crate::cli::text::short_size;

/// Returns the mount that contains a directory or file which is given in place of an image.
pub(in crate::cli) fn mount_of(image: &ImageArgs) -> Option<PathBuf> {
    let path = &image.image;
    if path.is_dir() {
        return mount_with(path);
    }
    let whole = path.canonicalize().ok()?;
    let mount = mount_with(whole.parent()?)?;
    // An image may be in a mount itself.
    let is_image = || whole.is_file() && holds_one_btrfs(&whole);
    (image.given_option().is_none() && !is_image()).then_some(mount)
}

/// Returns the mount that contains a directory.
fn mount_with(dir: &Path) -> Option<PathBuf> {
    match control::check(dir) {
        Ok(()) => dir.canonicalize().ok(),
        Err(AskError::Within { mount, .. }) => Some(mount),
        Err(_) => None,
    }
}

pub(in crate::cli) fn run(global: &Global, args: &DfArgs, mount: &Path) -> Result<ExitCode> {
    let found = statvfs(mount).with_context(|| mount.display().to_string())?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let size = bytes(found.f_blocks);
    let used = bytes(found.f_blocks.saturating_sub(found.f_bfree));
    let available = bytes(found.f_bavail);
    let source = source_of(mount).unwrap_or_default();
    if global.format == Format::Json {
        let document = json!({ "size": size, "used": used, "available": available });
        let document = with_name(document, "source", &source);
        print_json("df", &with_name(document, "target", mount.as_os_str().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = |bytes| if args.raw { u64::to_string(&bytes) } else { short_size(bytes, 1024) };
    let total = u128::from(used) + u128::from(available);
    let percent = (u128::from(used) * 100).div_ceil(total.max(1));
    let source = Quoted(&source).to_string();
    let target = Quoted(mount.as_os_str().as_bytes()).to_string();
    let width = source.chars().count().max("Filesystem    ".len());
    let mut out = stdout();
    let [first, second, third, fourth] = ["Filesystem", "Size", "Used", "Avail"];
    writeln!(out, "{first:<width$} {second:>5} {third:>5} {fourth:>5} Use% Mounted on")?;
    let [size, used, available] = [size, used, available].map(shown);
    writeln!(out, "{source:<width$} {size:>5} {used:>5} {available:>5} {percent:>3}% {target}")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the source of a mount, as the table of mounts has it.
fn source_of(mount: &Path) -> Option<Vec<u8>> {
    let table = std::fs::read("/proc/self/mounts").ok()?;
    let mut sources = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let source = fields.next()?;
        let point = PathBuf::from(OsString::from_vec(unescaped(fields.next()?)));
        (point == mount).then(|| unescaped(source))
    });
    sources.next_back()
}

/// Returns a field of the table of mounts without its octal escapes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| *first == b'\\').and_then(|it| str::from_utf8(it).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        text.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_table_of_mounts_are_octal() {
        assert_eq!(unescaped(br"/a\040b\134"), b"/a b\\");
        assert_eq!(unescaped(br"\9\04"), br"\9\04");
    }
}
