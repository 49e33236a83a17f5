//! Small files, which are stored inline in the tree.

use super::*;

/// It is about to leave the tree, and no leaf of the small nodes would hold all of it.
#[test]
fn inline_file_that_grew_and_was_cut_keeps_its_content() {
    for nodesize in [4096, 8192, 16384] {
        let lab = Lab::of(64 << 20, &Options { nodesize, ..Options::default() }, 16 << 20);
        let file = lab.create("file");
        file.write_at(&[7; 300], 0).unwrap();
        file.sync_all().unwrap();
        file.set_len(4090).unwrap();
        file.set_len(4080).unwrap();
        let before_it_is_written = lab.fs.inner.transactions.as_ref().unwrap().merge_pending();
        before_it_is_written.unwrap();
        let expected = [vec![7; 300], vec![0; 3780]].concat();
        assert!(file.read_all().unwrap() == expected, "{nodesize}");
        drop(file);
        let lab = lab.reopened();
        assert!(lab.fs.read("file").unwrap() == expected, "{nodesize}, opened again");
        lab.close();
    }
}
