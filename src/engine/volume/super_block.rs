// SPDX-License-Identifier: GPL-2.0

//! The super block: one sector that says how the volume was left.
//!
//! Writers take turns: whoever has the page writes. After a failed write nobody knows what is on disk, so it is never written
//! again. Lock order: `inner`, then that of the journal's state, which a change may ask for what the super block is to say of it; the
//! journal knows nothing of the super block.

use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::store::Store;
use crate::engine::units::Pbn;
use crate::rt::{spin_lock, AllocError, Arc, Page, SpinLock, WaitList};

struct Inner {
    content: SuperBlock,
    /// The block as read: bytes that mean nothing to us stay as they are. Away while it is being written.
    page: Option<Page>,
    broken: bool,
}

/// The super block of a volume that is open.
pub(super) struct SuperBlockKeeper<E: Env> {
    store: Arc<Store<E>>,
    pbn: Pbn,
    inner: SpinLock<Inner>,
    turn: WaitList,
}

impl<E: Env> SuperBlockKeeper<E> {
    /// Keeps the super block `content`, read from `pbn` into `page`.
    pub(super) fn new(
        store: Arc<Store<E>>,
        pbn: Pbn,
        content: SuperBlock,
        page: Page,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            store,
            pbn,
            inner: spin_lock!(Inner {
                content,
                page: Some(page),
                broken: false,
            })?,
            turn: WaitList::new()?,
        })
    }

    /// What it says now.
    pub(super) fn content(&self) -> SuperBlock {
        self.inner.lock().content
    }

    /// Changes it and writes it, in one sector, after everything written so far and durable itself.
    pub(super) async fn update(
        &self,
        change: impl Fn(&mut SuperBlock) + Send,
    ) -> Result<(), Error> {
        let mut page = self
            .turn
            .wait_until(|| {
                let mut inner = self.inner.lock();
                if inner.broken {
                    return Some(Err(Error::ReadOnly));
                }
                inner.page.take().map(Ok)
            })
            .await?;
        let encoded = {
            let mut inner = self.inner.lock();
            change(&mut inner.content);
            inner.content.encode(&mut page)
        };
        let mut result = encoded.map_err(Error::from);
        if result.is_ok() {
            let written = self
                .store
                .write(self.pbn, page, IoClass::Metadata, WriteFlags::PREFLUSH_FUA)
                .await;
            page = written.0;
            result = written.1.map_err(Error::from);
        }
        {
            let mut inner = self.inner.lock();
            inner.broken = result.is_err();
            inner.page = Some(page);
        }
        self.turn.wake_all();
        result
    }
}
