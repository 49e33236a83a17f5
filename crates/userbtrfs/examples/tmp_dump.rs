//! Temporary.
use std::io::Write;
use userbtrfs::dump::{Format, TreeSelection, dump_super, dump_tree};
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_volume::Volume;
fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap();
    let path = args.next().unwrap();
    let tree = args.next();
    let device = FileDevice::open(std::path::Path::new(&path), FileOptions::default()).unwrap();
    let volume = Volume::open(vec![std::sync::Arc::new(device)]).unwrap();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let format = if what.ends_with('j') { Format::Json } else { Format::Text };
    let mut damaged = |e: &userbtrfs_volume::ReadError| eprintln!("DAMAGED {e}");
    if what.starts_with('s') {
        dump_super(volume.superblock(), &path, true, format, &mut out).unwrap();
    } else {
        let which = tree.map_or(TreeSelection::All, |t| {
            TreeSelection::One(userbtrfs_format::TreeId(t.parse().unwrap()))
        });
        if let Err(e) = dump_tree(&volume, which, format, &mut out, &mut damaged) {
            eprintln!("ERROR {e}");
        }
    }
    out.flush().unwrap();
}
