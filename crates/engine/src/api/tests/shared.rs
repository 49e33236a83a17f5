//! Several threads on one filesystem.

use userbtrfs_sync::thread;

use super::*;

#[test]
fn concurrent_appends_stay_in_one_piece() {
    let lab = Lab::of(128 << 20, &Options::default(), 8 << 20);
    let file = lab.create("log");
    thread::scope(|scope| {
        for number in 1..=4_u8 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..200 {
                    file.append(&[number; 777]).unwrap();
                }
            });
        }
    });
    drop(file);
    let lab = lab.reopened();
    let found = lab.fs.read("log").unwrap();
    let mut counts = [0; 5];
    for piece in found.chunks(777) {
        assert!(piece.len() == 777 && piece.iter().all(|byte| *byte == piece[0]));
        counts[usize::from(piece[0])] += 1;
    }
    assert_eq!(counts, [0, 200, 200, 200, 200]);
    lab.close();
}

/// Each thread owns every fourth sector of the file, which another thread truncates and extends.
#[test]
fn writers_truncators_and_syncs_of_one_file_do_not_mix_up_its_bytes() {
    let lab = Lab::of(256 << 20, &Options::default(), 8 << 20);
    let file = lab.create("file");
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let file = &file;
            scope.spawn(move || write_own(file, number));
        }
        let file = &file;
        let fs = &lab.fs;
        scope.spawn(move || {
            let mut random = Random(99);
            for _ in 0..150 {
                file.set_len(random.below(4 << 20)).unwrap();
                let range = (random.below(4 << 20), 1 + random.below(1 << 20));
                file.allocate(range.0, range.1, Allocate::PunchHole).unwrap();
            }
        });
        scope.spawn(move || {
            for round in 0..40 {
                if round % 4 == 0 { fs.commit().unwrap() } else { file.sync_all().unwrap() }
            }
        });
    });
    let content = file.read_all().unwrap();
    drop(file);
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == content);
    for (sector, bytes) in content.chunks(4096).enumerate() {
        let own = u8::try_from(sector % 4 + 1).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0 || *byte == own), "sector {sector}");
    }
    lab.close();
}

fn write_own(file: &File, number: u64) {
    let mut random = Random(number);
    let own = [u8::try_from(number + 1).unwrap(); 4096];
    for _ in 0..3000 {
        let sector = random.below(256) * 4 + number;
        let start = random.below(4096);
        let len = usize::try_from(1 + random.below(4096 - start)).unwrap();
        file.write_at(&own[..len], sector * 4096 + start).unwrap();
        let mut read = [0; 4096];
        let count = file.read_at(&mut read, sector * 4096).unwrap();
        assert!(read[..count].iter().all(|byte| *byte == 0 || *byte == own[0]));
    }
}

#[test]
fn files_are_deleted_while_they_are_written() {
    let lab = Lab::of(128 << 20, &Options::default(), 8 << 20);
    let used = lab.data_in_use();
    thread::scope(|scope| {
        for number in 0..4 {
            let lab = &lab;
            scope.spawn(move || {
                for round in 0..60 {
                    let name = format!("file {number} {round}");
                    let file = lab.create(&name);
                    file.write_all_at(&pattern(round, 300_000), 0).unwrap();
                    if round % 3 == 0 {
                        drop(file);
                        lab.fs.remove_file(&name).unwrap();
                    } else {
                        lab.fs.remove_file(&name).unwrap();
                        assert!(file.read_all().unwrap() == pattern(round, 300_000));
                    }
                }
            });
        }
        for _ in 0..20 {
            lab.fs.commit().unwrap();
        }
    });
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), used);
    lab.close();
}
