//! A value that exists only in builds with debug assertions.

/// A `T` in builds that check the lock order, an empty value in others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked<T> {
    #[cfg(debug_assertions)]
    value: T,
    #[cfg(not(debug_assertions))]
    value: std::marker::PhantomData<T>,
}

#[cfg(debug_assertions)]
impl<T: Copy> Checked<T> {
    /// Makes the value.
    pub(super) fn new(make: impl FnOnce() -> T) -> Self {
        Self { value: make() }
    }

    /// Returns the value.
    #[expect(clippy::unnecessary_wraps, reason = "the other build has none")]
    pub(super) fn get(self) -> Option<T> {
        Some(self.value)
    }
}

#[cfg(not(debug_assertions))]
impl<T: Copy> Checked<T> {
    /// Makes an empty value; the closure is not called.
    #[inline]
    pub(super) fn new(_: impl FnOnce() -> T) -> Self {
        Self { value: std::marker::PhantomData }
    }

    /// Returns `None`.
    #[expect(clippy::unused_self, reason = "the same call as the other build's")]
    #[inline]
    pub(super) fn get(self) -> Option<T> {
        None
    }
}

impl<T: Copy> Checked<T> {
    /// Applies `make` to the value, if there is one.
    #[inline]
    pub(super) fn map<U: Copy>(self, make: impl FnOnce(T) -> U) -> Checked<U> {
        Checked::new(|| make(self.get().expect("made only where values exist")))
    }
}
