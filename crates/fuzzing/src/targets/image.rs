//! Whole images with damaged blocks, and with correct checksums.

use std::cell::RefCell;

use arbitrary::{Result, Unstructured};
use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_engine::api::OpenOptions;
use userbtrfs_format::{Expectation, Logical, TreeId};
use userbtrfs_image_builder::{ImageEditor, RawBlock, SparseImage, header, small_image, u64_at};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{Volume, walk};

use super::filesystem::look_at_all;
use crate::damage::damage;

/// Golden images with subvolumes, all forms of extents, many links, an orphan, quotas.
const GOLDEN: [&[u8]; 6] = [
    include_bytes!("../../../../golden/subvolumes.img.zst"),
    include_bytes!("../../../../golden/extents.img.zst"),
    include_bytes!("../../../../golden/links.img.zst"),
    include_bytes!("../../../../golden/orphan.img.zst"),
    include_bytes!("../../../../golden/qgroups.img.zst"),
    include_bytes!("../../../../golden/hole-items.img.zst"),
];

/// The maximum number of blocks that a walk reads.
const BLOCKS_MAX: u64 = 200;

thread_local! {
    static SUBJECTS: RefCell<Vec<Option<Subject>>> =
        RefCell::new((0..=GOLDEN.len()).map(|_| None).collect());
}

/// An undamaged image, with the blocks that can be damaged.
struct Subject {
    editor: ImageEditor,
    trees: Vec<TreeId>,
    blocks: Vec<Logical>,
}

impl Subject {
    fn new(number: usize) -> Self {
        let device: Arc<dyn Device> = match number.checked_sub(1) {
            None => Arc::new(MemoryDevice::from_bytes(small_image())),
            Some(golden) => {
                let unpacked = zstd::Decoder::new(GOLDEN[golden]).and_then(SparseImage::read_from);
                Arc::new(unpacked.expect("the image is packed well").to_device())
            }
        };
        let editor = ImageEditor::over(device).expect("the image is sound");
        let trees = editor.trees();
        let blocks = trees.iter().flat_map(|&tree| editor.tree_blocks(tree)).map(|b| b.0);
        let blocks = blocks.collect();
        Self { editor, trees, blocks }
    }
}

/// Damages a few tree blocks or the superblock of an image, and reads all of it.
pub(crate) fn image(input: &[u8]) {
    let input = &mut Unstructured::new(input);
    let Ok(number) = choose(input) else { return };
    SUBJECTS.with_borrow_mut(|subjects| {
        let subject = subjects[number].get_or_insert_with(|| Subject::new(number));
        // Without more input there is no more damage.
        spoil(input, subject).ok();
        look(subject);
        subject.editor.revert();
    });
}

/// Chooses an image: for most inputs the small one, which is the fastest.
fn choose(input: &mut Unstructured<'_>) -> Result<usize> {
    if input.ratio(3, 4)? { Ok(0) } else { input.int_in_range(0..=GOLDEN.len()) }
}

fn spoil(input: &mut Unstructured<'_>, subject: &mut Subject) -> Result<()> {
    if input.ratio(1, 16)? {
        subject.editor.edit_superblock(|bytes| damage(input, bytes).unwrap_or_default());
    }
    for _ in 0..input.int_in_range(1..=3)? {
        let logical = *input.choose(&subject.blocks)?;
        let mut block = subject.editor.block(logical).expect("it was found before");
        damage_block(input, &mut block)?;
        subject.editor.edit_block(logical, |bytes| bytes.copy_from_slice(&block));
    }
    Ok(())
}

/// Damages the content of an item, the item headers, or any byte.
fn damage_block(input: &mut Unstructured<'_>, block: &mut [u8]) -> Result<()> {
    let raw = RawBlock(block);
    let slots = raw.slots().max(1);
    let slot = input.choose_index(slots)?;
    let range = match input.int_in_range(0..=7)? {
        0 => 0..block.len(),
        1 => header::BYTENR..header::SIZE,
        2 => raw.slot_at(slot)..raw.slot_at(slot + 1).min(block.len()),
        _ if raw.level() == 0 => raw.item(slot).unwrap_or(0..0),
        _ => header::SIZE..raw.slot_at(slots).min(block.len()),
    };
    damage(input, &mut block[range])
}

/// Reads every block of every tree, then everything through the API.
fn look(subject: &Subject) {
    let devices = || vec![Arc::clone(subject.editor.device())];
    let Ok(volume) = Volume::open(devices()) else { return };
    for &tree in &subject.trees {
        walk_tree(&subject.editor, &volume, tree);
    }
    let mut options = OpenOptions::new();
    if let Ok(filesystem) = options.memory(8 << 20).open_devices(devices()) {
        look_at_all(&filesystem);
    }
}

fn walk_tree(editor: &ImageEditor, volume: &Volume, owner: TreeId) -> Option<()> {
    let root = editor.root(owner)?;
    let block = editor.block(root)?;
    let expected = Expectation {
        owner,
        level: block[header::LEVEL],
        generation: u64_at(&block, header::GENERATION),
        first_key: None,
        end: None,
    };
    let mut leaves = walk(volume, root, expected, BLOCKS_MAX);
    while leaves.next_leaf().ok()?.is_some() {}
    Some(())
}
