//! Shorter and simpler lists that still fail.

/// A part of `list`, in its order, that still fails and of which no single element can be left
/// out. `fails` is asked about lists; it must say yes to the whole one.
///
/// Delta debugging: parts of half the list are left out first, then ever smaller ones.
pub fn shrink<T: Clone>(list: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut list = list.to_vec();
    let mut size = list.len().div_ceil(2);
    while size > 0 {
        let is_shorter = leave_out(&mut list, size, &mut fails);
        // Once one can be left out, others can that could not before.
        if size > 1 || !is_shorter {
            size /= 2;
        }
    }
    list
}

/// The same list with elements that are simpler, of which none can be made simpler still. What a
/// simpler element is, `simpler` says, the simplest first; it must come to an end.
pub fn simplify<T: Clone>(
    list: &[T],
    simpler: impl Fn(&T) -> Vec<T>,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut list = list.to_vec();
    let mut index = 0;
    while index < list.len() {
        let before = list[index].clone();
        let found = simpler(&before).into_iter().any(|one| {
            list[index] = one;
            fails(&list)
        });
        if !found {
            list[index] = before;
            index += 1;
        }
    }
    list
}

/// Leaves out every part of this size without which the list still fails; says if there was one.
fn leave_out<T: Clone>(
    list: &mut Vec<T>,
    size: usize,
    fails: &mut impl FnMut(&[T]) -> bool,
) -> bool {
    let before = list.len();
    let mut start = 0;
    while start < list.len() {
        let end = list.len().min(start + size);
        let without = [&list[..start], &list[end..]].concat();
        if fails(&without) {
            *list = without;
        } else {
            start = end;
        }
    }
    list.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays_in_its_order() {
        let list: Vec<u32> = (0..1000).collect();
        let mut asked = 0;
        let needed = [3, 400, 401, 999];
        let fails = |list: &[u32]| {
            asked += 1;
            needed.iter().all(|one| list.contains(one))
        };
        assert_eq!(shrink(&list, fails), needed);
        assert!(asked < 200, "asked {asked} times");
    }

    #[test]
    fn elements_become_as_simple_as_can_be() {
        let less =
            |n: &u32| [0, *n / 2, n.saturating_sub(1)].into_iter().filter(|m| m < n).collect();
        let fails = |list: &[u32]| list[1] >= 37 && list[0] + list[2] > 4;
        assert_eq!(simplify(&[3, 1000, 7], less, fails), [0, 37, 5]);
    }

    #[test]
    fn a_single_element_that_comes_to_be_needless_goes() {
        // Until 1 is gone, 0 is needed.
        let fails = |list: &[u8]| list.contains(&2) && (list.contains(&0) || !list.contains(&1));
        assert_eq!(shrink(&[0, 1, 2], fails), [2]);
        assert!(shrink(&[1, 2, 3], |_| true).is_empty());
    }
}
