// SPDX-License-Identifier: GPL-2.0

//! The deduplication index, as the rest of deduplication sees it.

use core::future::Future;

use crate::engine::format::block_name::Advice;
use crate::engine::format::{BlockName, Mapping};
use crate::engine::statistics::IndexStats;
use crate::rt::Arc;

/// Remembers where data with a certain name was stored.
///
/// What it says is advice: it may be out of date, or wrong, and is verified before it is used. What it forgets costs space only.
pub trait Index: Send + Sync + 'static {
    /// Looks a name up. If it is not there and `location` is given, remembers that the data is going to be at `location`.
    fn query_or_post(
        &self,
        name: &BlockName,
        location: Option<Mapping>,
    ) -> impl Future<Output = Option<Advice>> + Send;

    /// Remembers that the data with this name is at `location` now. Never waits: an index that would have to does it later, or
    /// not at all.
    fn update(&self, name: &BlockName, location: Mapping);

    /// What the index has done.
    fn statistics(&self) -> IndexStats;
}

/// An index that outlives the volume it was made for.
impl<I: Index> Index for Arc<I> {
    fn query_or_post(
        &self,
        name: &BlockName,
        location: Option<Mapping>,
    ) -> impl Future<Output = Option<Advice>> + Send {
        I::query_or_post(self, name, location)
    }

    fn update(&self, name: &BlockName, location: Mapping) {
        I::update(self, name, location);
    }

    fn statistics(&self) -> IndexStats {
        I::statistics(self)
    }
}
