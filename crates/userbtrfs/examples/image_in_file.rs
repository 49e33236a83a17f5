//! Keeps a filesystem inside a bigger file: the device is a window of that file.
//!
//! ```text
//! cargo run --example image_in_file -- new.bin
//! ```
//!
//! `OpenOptions::region` opens such an image, too; a device of one's own does it for any storage.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use userbtrfs::device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs::{OpenOptions, PathError, mkfs};

/// The offset of the filesystem in the file.
const START: u64 = 4096;
/// The length of the filesystem in bytes.
const LEN: u64 = 256 << 20;
/// The bytes before and after the filesystem, which are not its own.
const MARGIN: &[u8] = &[0xa5; 4096];

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: image_in_file FILE");
        return ExitCode::FAILURE;
    };
    if let Err(error) = run(&path) {
        eprintln!("{path}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(path: &str) -> Result<(), Box<dyn Error>> {
    let file = File::create_new(path)?;
    file.write_all_at(MARGIN, 0)?;
    file.write_all_at(MARGIN, START + LEN)?;

    let window = Arc::new(Window::open(path)?);
    mkfs::make(&*window, &mkfs::Options::default())?;
    append(window, "made\n")?;
    // The first device is gone: the second one finds the filesystem in the file.
    let window = Arc::new(Window::open(path)?);
    append(window.clone(), "opened again\n")?;

    let filesystem = OpenOptions::new().open_devices(vec![window])?;
    print!("{}", String::from_utf8_lossy(&filesystem.read("/journal")?));
    check_margins(path)?;
    println!("the bytes around the filesystem are unchanged");
    Ok(())
}

/// Appends a line to a file, makes it durable by fsync, and ends as a crash would.
fn append(window: Arc<Window>, line: &str) -> Result<(), userbtrfs::Error> {
    let filesystem = OpenOptions::new().write(true).open_devices(vec![window])?;
    let inode = match filesystem.lookup("/journal") {
        Err(PathError { error: userbtrfs::Error::NotFound, .. }) => {
            filesystem.root().create(b"journal", 0o644)?
        }
        found => found?,
    };
    let file = inode.open()?;
    file.append(line.as_bytes())?;
    file.sync_all()?;
    drop((file, inode));
    filesystem.abandon();
    Ok(())
}

/// Fails if a byte outside of the window was changed.
fn check_margins(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    for start in [0, START + LEN] {
        let mut bytes = [0; MARGIN.len()];
        file.read_exact_at(&mut bytes, start)?;
        if bytes[..] != *MARGIN {
            return Err(io::Error::other(format!("the bytes at {start} were changed")));
        }
    }
    Ok(())
}

/// A device that is the range of a file from `START` on.
///
/// Nothing locks the file: unlike `FileDevice`, this device does not keep other writers away.
struct Window {
    file: File,
    name: String,
}

impl Window {
    fn open(path: &str) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file, name: path.to_owned() })
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    /// Does a request whole, or fails; one that is not in the window touches no byte.
    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        let device = self.name.as_str();
        if access.offset.checked_add(access.len).is_none_or(|end| end > LEN) {
            let device = device.into();
            return Err(DeviceError::BeyondEnd { device, access, device_len: LEN });
        }
        let done = match request {
            Request::Read { offset, buffer } => self.file.read_exact_at(buffer, START + *offset),
            Request::Write { offset, buffer, fua } => {
                let written = self.file.write_all_at(buffer, START + *offset);
                if *fua { written.and_then(|()| self.file.sync_data()) } else { written }
            }
            // All completed writes must be durable when a flush returns.
            Request::Flush => self.file.sync_data(),
            // A discard is a hint.
            Request::Discard { .. } => Ok(()),
        };
        done.map_err(|source| DeviceError::Io { device: device.into(), access, source })
    }
}

impl Device for Window {
    fn len(&self) -> u64 {
        LEN
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}
