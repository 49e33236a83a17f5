//! One story, and the check of its expectations.

use super::act::Acted;
use super::expectation::Expectation;
use super::seen::Seen;
use super::step::Step;

/// One story of the document.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name, also that of its test.
    pub name: String,
    /// The alternative sequences of steps; all must lead to the same expectations.
    pub ways: Vec<Vec<Step>>,
    /// The expectations.
    pub must: Vec<Expectation>,
    /// Whether it is also run on a filesystem without `NO_HOLES`.
    pub hole_items: bool,
}

impl Story {
    /// Returns all unmet expectations, one per line.
    pub fn check(&self, acted: &Acted, seen: &Seen) -> Vec<String> {
        let failures = self.must.iter().filter_map(|must| must.check(acted, seen).err());
        failures.collect()
    }
}
