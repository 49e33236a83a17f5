//! Reduction of failing lists to shorter and simpler ones.

/// Returns a part of `list`, in its order, that still fails and from which no single element can be
/// removed. `fails` returns whether a list fails; it must return true for `list`.
///
/// Delta debugging: removes halves of the list first, then ever smaller parts.
pub fn shrink<T: Clone>(list: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut list = list.to_vec();
    let mut size = list.len().div_ceil(2);
    while size > 0 {
        let is_shorter = leave_out(&mut list, size, &mut fails);
        // After one element is removed, others may be removable that were not before.
        if size > 1 || !is_shorter {
            size /= 2;
        }
    }
    list
}

/// Returns the list with simpler elements, none of which can be simplified further. `simpler`
/// returns the simpler variants of an element, the simplest first; it must terminate.
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

/// Removes every part of this size without which the list still fails; returns whether any was.
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
    fn element_that_becomes_unnecessary_is_removed() {
        // 0 is needed until 1 is removed.
        let fails = |list: &[u8]| list.contains(&2) && (list.contains(&0) || !list.contains(&1));
        assert_eq!(shrink(&[0, 1, 2], fails), [2]);
        assert!(shrink(&[1, 2, 3], |_| true).is_empty());
    }
}
