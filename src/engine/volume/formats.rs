// SPDX-License-Identifier: GPL-2.0

//! Which compressed formats the volume may hold.
//!
//! The super block says so, and says so first: the flag of a format is on the disk, flushed, before the first block of the format is
//! written. The data path asks [`Admitted`](crate::engine::admitted::Admitted).

use super::Volume;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::{RequiredFlags, StreamFormat};

impl<E: Env> Volume<E> {
    /// What is required to read the volume. `None`: it is as the in-tree driver makes it.
    pub fn required_flags(&self) -> Option<RequiredFlags> {
        self.super_block.content().required
    }

    /// Whether compressed blocks of the volume can be of other formats than LZ4.
    pub fn has_block_formats(&self) -> bool {
        self.required_flags()
            .is_some_and(|flags| flags.contains(RequiredFlags::BLOCK_FORMAT))
    }

    /// Whether the volume may hold blocks of `format`, as far as the super block says.
    pub fn may_hold(&self, format: StreamFormat) -> bool {
        format == StreamFormat::Lz4
            || self
                .required_flags()
                .is_some_and(|flags| flags.has_format(format))
    }

    /// Whether a block of `format` may be written now.
    pub(super) fn may_store(&self, format: StreamFormat) -> bool {
        self.formats.has(format)
    }

    /// Lets blocks of `format` be written. The super block has the flag when this returns.
    ///
    /// # Errors
    ///
    /// The volume was not upgraded; its blocks can only be LZ4.
    pub async fn admit_format(&self, format: StreamFormat) -> Result<(), Error> {
        if self.may_store(format) {
            return Ok(());
        }
        if !self.has_block_formats() {
            return Err(Error::Unsupported(
                "the volume has the original format, whose compressed blocks can only be lz4",
            ));
        }
        self.store.read_only().check()?;
        if !self.may_hold(format) {
            let update = self.super_block.update(|content| {
                content.required = content.required.map(|flags| flags.with(format.flag()));
            });
            self.store
                .read_only()
                .guard(update.await, "adding a format to the super block")?;
        }
        self.formats.add(format);
        Ok(())
    }

    /// The compressor in use is another one: fragments of the one before are written as they are, not kept for company that will
    /// not come.
    pub fn compressor_changed(&self) {
        self.packer.flush();
    }

    /// Switches the check of every compressed block on or off.
    pub fn set_compression_verify(&self, on: bool) {
        self.verifier.set(on);
    }

    /// Whether every compressed block is checked.
    pub fn verifies_compression(&self) -> bool {
        self.verifier.is_on()
    }
}
