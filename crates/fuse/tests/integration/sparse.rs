//! The contents of a file, by pages; a missing page is a hole.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// Contents with holes.
#[derive(Default)]
pub(crate) struct Sparse {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Sparse {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the allocated space in units of 512 bytes.
    pub(crate) fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE / 512)
    }

    pub(crate) fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(size));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let from = index(at % PAGE);
            let count = index((PAGE - at % PAGE).min(end - at));
            match self.pages.get(&(at / PAGE)) {
                Some(page) => bytes.extend_from_slice(&page[from..from + count]),
                None => bytes.resize(bytes.len() + count, 0),
            }
            at += count as u64;
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = offset;
        while !data.is_empty() {
            let from = index(at % PAGE);
            let count = data.len().min(index(PAGE) - from);
            let page = self.pages.entry(at / PAGE).or_insert_with(empty_page);
            page[from..from + count].copy_from_slice(&data[..count]);
            data = &data[count..];
            at += count as u64;
        }
        self.size = self.size.max(at);
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size - size);
        }
        self.size = size;
    }

    pub(crate) fn allocate(&mut self, offset: u64, length: u64) {
        for page in offset / PAGE..(offset + length).div_ceil(PAGE) {
            self.pages.entry(page).or_insert_with(empty_page);
        }
    }

    pub(crate) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        for (number, page) in self.pages.range_mut(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let from = offset.saturating_sub(start).min(PAGE);
            let to = end.saturating_sub(start).min(PAGE);
            page[index(from)..index(to)].fill(0);
        }
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        self.pages.retain(|number, _| !whole.contains(number));
    }

    /// Returns the first data at or after this offset.
    pub(crate) fn next_data(&self, offset: u64) -> Option<u64> {
        let page = self.pages.range(offset / PAGE..).next()?.0 * PAGE;
        let data = page.max(offset);
        (data < self.size).then_some(data)
    }

    /// Returns the first hole at or after this offset; the end of the file is one.
    pub(crate) fn next_hole(&self, offset: u64) -> Option<u64> {
        let pages = offset / PAGE..;
        let page = pages.into_iter().find(|page| !self.pages.contains_key(page))?;
        (offset < self.size).then_some((page * PAGE).max(offset).min(self.size))
    }
}

fn empty_page() -> Vec<u8> {
    vec![0; index(PAGE)]
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
