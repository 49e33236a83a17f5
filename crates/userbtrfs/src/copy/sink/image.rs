//! Makes the copy in an image.

use userbtrfs_engine::api::{Attributes, Dir, Error, File, Inode, InodeId, RenameMode, XattrMode};

use super::{Item, Sink};
use crate::copy::error::SideError;
use crate::copy::options::Keep;
use crate::copy::shared::SharedRange;
use crate::copy::source::{Kind, Origin};

/// A tree in an image. The handle of a directory decides whether new inodes inherit its ACLs.
pub(in crate::copy) enum ImageSink {}

impl Sink for ImageSink {
    type Dir = Dir;
    type File = File;
    type Other = Inode;
    type Object<'a> = &'a Inode;
    type Links = Inode;

    const INHERITS_ACLS: bool = false;

    fn make_dir(item: &Item<Self>, mode: u32, keep: Keep) -> Result<(Dir, bool), SideError> {
        match item.dir.create_dir(item.name.to_bytes(), mode) {
            Err(Error::Exists) => {
                let inode = item.dir.lookup(item.name.to_bytes())?;
                Ok((keep.acls_in(inode.open_dir()?), false))
            }
            made => Ok((keep.acls_in(made?), true)),
        }
    }

    fn make_file(item: &Item<Self>, mode: u32) -> Result<File, SideError> {
        Ok(item.dir.create(item.made_name().to_bytes(), mode)?.open()?)
    }

    fn open_existing(item: &Item<Self>) -> Result<Option<File>, SideError> {
        let inode = item.dir.lookup(item.name.to_bytes())?;
        Ok(if inode.metadata()?.is_file() { Some(inode.open()?) } else { None })
    }

    fn make_unnamed(item: &Item<Self>, mode: u32) -> Result<File, SideError> {
        Ok(item.dir.create_unnamed(mode)?.open()?)
    }

    /// The size is set at the end, so that the old content is not lost if there is no space for the
    /// new one.
    fn replace_content(existing: &File, new: &File) -> Result<(), SideError> {
        let size = new.len();
        let shared = existing.share_from(new, 0, 0, size)?;
        existing.copy_from(new, shared, shared, size.saturating_sub(shared))?;
        Ok(existing.set_len(size)?)
    }

    fn make_other(item: &Item<Self>, mode: u32) -> Result<Inode, SideError> {
        let name = item.made_name().to_bytes();
        Ok(match &item.entry.kind {
            Kind::Symlink(target) => item.dir.symlink(name, target)?,
            Kind::Special(device) => item.dir.make_node(name, mode, *device)?,
            Kind::Directory | Kind::File => unreachable!("they have events of their own"),
        })
    }

    fn links(_: &Item<Self>, object: &Inode) -> Inode {
        object.clone()
    }

    fn make_link(item: &Item<Self>, links: &mut Inode) -> Result<(), SideError> {
        let name = item.made_name().to_bytes();
        match item.dir.link(name, links) {
            Err(Error::Exists) if item.dir.lookup(name)?.id() == links.id() => Ok(()),
            linked => Ok(linked?),
        }
    }

    /// A file is complete, or removed, before the next entry: it has no other name.
    fn remove_links(_: &Inode) {}

    fn remove(item: &Item<Self>) -> Result<(), SideError> {
        Ok(item.dir.remove_file(item.made_name().to_bytes())?)
    }

    fn check_replaceable(item: &Item<Self>) -> Result<(), SideError> {
        let there = item.dir.lookup(item.name.to_bytes())?.metadata()?;
        if there.is_dir() { Err(Error::IsADirectory.into()) } else { Ok(()) }
    }

    fn replace(item: &Item<Self>) -> Result<(), SideError> {
        let from = item.made_name().to_bytes();
        Ok(item.dir.rename(from, &item.dir, item.name.to_bytes(), RenameMode::Replace)?)
    }

    fn rename_link(_: &Item<Self>, _: &mut Inode) {}

    fn is_image(_: &Item<Self>, _: (u64, u64)) -> Result<bool, SideError> {
        Ok(false)
    }

    fn is_source(item: &Item<Self>) -> Result<bool, SideError> {
        let Origin::Image(id) = item.entry.origin else { return Ok(false) };
        let there = item.dir.lookup(item.name.to_bytes())?.id();
        let is_led_to = || {
            let path = item.entry.path.as_os_str().as_encoded_bytes();
            let led_to = item.dir.inode().filesystem().lookup(path);
            led_to.is_ok_and(|found| found.id() == there)
        };
        Ok(there == id || matches!(item.entry.kind, Kind::Symlink(_)) && is_led_to())
    }

    fn is_dir(dir: &Dir, origin: Origin) -> bool {
        Origin::Image(dir.inode().id()) == origin
    }

    fn object_of_dir(dir: &Dir) -> &Inode {
        dir.inode()
    }

    fn object_of_file(file: &File) -> &Inode {
        file.inode()
    }

    fn object_of_other<'a>(_: &'a Item<Self>, other: &'a Inode) -> &'a Inode {
        other
    }

    fn share(file: &File, origin: Origin) -> Result<Option<u64>, SideError> {
        let Origin::Image(id) = origin else { return Ok(None) };
        let source = file.inode().filesystem().inode(id).open()?;
        file.clone_range(&source, 0, 0, 0)?;
        Ok(Some(file.len()))
    }

    fn share_range(file: &File, copy: InodeId, range: SharedRange) -> Result<u64, SideError> {
        let source = file.inode().filesystem().inode(copy).open()?;
        Ok(file.share_from(&source, range.from, range.offset, range.len)?)
    }

    fn id(file: &File) -> Option<InodeId> {
        Some(file.inode().id())
    }

    fn write(file: &File, bytes: &[u8], offset: u64) -> Result<(), SideError> {
        Ok(file.write_all_at(bytes, offset)?)
    }

    fn set_len(file: &File, size: u64) -> Result<(), SideError> {
        Ok(file.set_len(size)?)
    }

    fn sync(file: &File) -> Result<(), SideError> {
        Ok(file.sync_all()?)
    }

    fn sync_dir(dir: &Dir) -> Result<(), SideError> {
        Ok(dir.inode().sync_all()?)
    }

    fn close(file: File) -> Result<(), SideError> {
        Ok(file.close()?)
    }

    /// A new owner changes no other attribute here if the mode is set with it: one change is
    /// cheaper than two.
    fn set_owner(_: &Inode, _: &Attributes) -> Result<(), SideError> {
        Ok(())
    }

    fn set_xattr(object: &Inode, name: &[u8], value: &[u8]) -> Result<(), SideError> {
        Ok(object.set_xattr(name, value, XattrMode::Either)?)
    }

    fn remove_xattr(object: &Inode, name: &[u8]) -> Result<(), SideError> {
        match object.remove_xattr(name) {
            Err(Error::NoAttribute) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn set_attributes(object: &Inode, attributes: &Attributes) -> Result<(), SideError> {
        if *attributes == Attributes::default() {
            return Ok(());
        }
        Ok(object.set_attributes(attributes)?)
    }
}
