//! The operations of the workloads in which requests fail.

use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Drivers, Generator, Operation};

/// Operations of the initial workload, and of the one with faults.
const LENGTH: usize = 160;

/// Draws operations to fill a filesystem, and those to run then, from the first seed that satisfies
/// [`is_varied`].
pub(super) fn draw(
    seed: u64,
    node_size: u32,
    with_subvolumes: bool,
) -> (Vec<Operation>, Vec<Operation>) {
    let mut drawn = (seed..).map(|seed| {
        let mut generator = Generator::new(seed, node_size).commit_every(40);
        if with_subvolumes {
            generator = generator.with_subvolumes(Drivers::Ours).without_copies_of_deleted_files();
        }
        let filling: Vec<_> =
            generator.by_ref().take(4 * LENGTH).chain([Operation::Reopen]).collect();
        (filling, generator.take(LENGTH).chain([Operation::Reopen]).collect())
    });
    let is_wanted = |(filling, operations): &(Vec<_>, Vec<_>)| {
        let done = done(node_size, filling, operations);
        is_varied(&done) && (!with_subvolumes || has_subvolumes(&done))
    };
    drawn.find(is_wanted).expect("seeds do not end")
}

/// Returns the operations after the filling that succeed.
fn done<'a>(
    node_size: u32,
    filling: &[Operation],
    operations: &'a [Operation],
) -> Vec<&'a Operation> {
    let mut model = Model::new(node_size);
    for operation in filling {
        let _ = model.apply(operation);
    }
    operations.iter().filter(|one| model.apply(one).is_ok()).collect()
}

/// Returns whether subvolumes are created and deleted, and snapshots made.
fn has_subvolumes(done: &[&Operation]) -> bool {
    let kinds: [fn(&Operation) -> bool; 3] = [
        |one| matches!(one, Operation::Subvolume { .. }),
        |one| matches!(one, Operation::Snapshot { .. }),
        |one| matches!(one, Operation::DeleteSubvolume { .. }),
    ];
    kinds.iter().all(|is| done.iter().any(|one| is(one)))
}

/// Returns whether operations write data, allocate space, and set attributes and xattrs.
fn is_varied(done: &[&Operation]) -> bool {
    let kinds: [fn(&Operation) -> bool; 4] = [
        |one| matches!(one, Operation::Write { length: 1.., .. }),
        |one| matches!(one, Operation::Allocate { .. }),
        |one| matches!(one, Operation::Setattr { .. }),
        |one| matches!(one, Operation::SetXattr { .. }),
    ];
    kinds.iter().all(|is| done.iter().any(|one| is(one)))
}
