// SPDX-License-Identifier: GPL-2.0

//! Fallible containers over those of the `kernel` crate.

use crate::kapi::noio::noio;
use crate::rt::AllocError;
use core::fmt;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;

/// A growable array whose growth can fail.
///
/// A large one is vmalloc memory: never drop it under a spinlock or in interrupt context.
pub struct Vec<T>(KVVec<T>);

impl<T> Vec<T> {
    /// An empty vector without memory.
    pub const fn new() -> Self {
        Self(KVVec::new())
    }

    /// An empty vector with room for `n` elements.
    pub fn with_capacity(n: usize) -> Result<Self, AllocError> {
        let mut vec = Self::new();
        vec.reserve(n)?;
        Ok(vec)
    }

    /// A vector of `n` elements, each made by `f` from its index.
    pub fn from_fn<E: From<AllocError>>(
        n: usize,
        mut f: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut vec = Self::with_capacity(n)?;
        for i in 0..n {
            // There is room for all of them.
            vec.push_within_capacity(f(i)?).map_err(|_| AllocError)?;
        }
        Ok(vec)
    }

    /// Makes room for `additional` elements more. May allocate.
    pub fn reserve(&mut self, additional: usize) -> Result<(), AllocError> {
        if self.0.capacity().saturating_sub(self.0.len()) < additional {
            noio(|| self.0.reserve(additional, GFP_KERNEL))?;
        }
        Ok(())
    }

    /// Number of elements that fit without allocating.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Appends `value`. May allocate: for load time.
    pub fn push(&mut self, value: T) -> Result<(), AllocError> {
        self.reserve(1)?;
        self.push_within_capacity(value).map_err(|_| AllocError)
    }

    /// Appends `value`, or returns it if there is no room. Never allocates.
    pub fn push_within_capacity(&mut self, value: T) -> Result<(), T> {
        self.0.push_within_capacity(value).map_err(|e| e.0)
    }

    /// Removes and returns the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Removes and returns element `i`; the last one takes its place.
    pub fn swap_remove(&mut self, i: usize) -> Option<T> {
        let last = self.0.len().checked_sub(1)?;
        if i > last {
            return None;
        }
        self.0.swap(i, last);
        self.0.pop()
    }

    /// Drops all elements after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.0.truncate(n);
    }

    /// Drops all elements and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends clones of `values`. May allocate.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), AllocError>
    where
        T: Clone,
    {
        noio(|| self.0.extend_from_slice(values, GFP_KERNEL))?;
        Ok(())
    }
}

impl<T> Default for Vec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Vec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Vec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Vec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T> IntoIterator for &'a Vec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Vec<T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

/// A value of its own on the heap.
pub struct Box<T>(KBox<T>);

impl<T> Box<T> {
    /// Moves `value` to the heap.
    pub fn new(value: T) -> Result<Self, AllocError> {
        Ok(Self(noio(|| KBox::new(value, GFP_KERNEL))?))
    }

    /// Moves the value out and frees the memory.
    pub fn into_inner(this: Self) -> T {
        KBox::into_inner(this.0)
    }
}

impl<T> Deref for Box<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Box<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Box<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A shared value that lives as long as any of its owners.
pub struct Arc<T>(kernel::sync::Arc<T>);

impl<T> Arc<T> {
    /// Moves `value` to the heap.
    pub fn new(value: T) -> Result<Self, AllocError> {
        Ok(Self(noio(|| kernel::sync::Arc::new(value, GFP_KERNEL))?))
    }

    /// Whether both own the same value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        kernel::sync::Arc::ptr_eq(&this.0, &other.0)
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
