// SPDX-License-Identifier: GPL-2.0

//! What a target decides about one bio.
//!
//! Device mapper wants a number back that says who owns the bio from now on. Here a [`Mapping`] can
//! only be had in exchange for the bio, so number and ownership always agree.

use core::marker::PhantomData;
use core::ops::Deref;

use kernel::prelude::*;

use super::DmDevice;
use crate::bindings as b;
use crate::kapi::bio::OwnedBio;

/// A bio that has arrived.
pub struct Incoming<'a> {
    bio: OwnedBio,
    /// Invariant in `'a`: an answer fits only the call it was given in.
    call: PhantomData<fn(&'a ()) -> &'a ()>,
}

/// The decision about an [`Incoming`] bio.
#[must_use]
pub struct Mapping<'a> {
    code: c_int,
    call: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(bio: OwnedBio) -> Self {
        Self {
            bio,
            call: PhantomData,
        }
    }

    fn mapping(code: u32) -> Mapping<'a> {
        Mapping {
            // One of the few `DM_MAPIO_` numbers.
            code: code as c_int,
            call: PhantomData,
        }
    }

    /// Takes the bio over, to be ended later or now.
    pub fn take(self) -> (OwnedBio, Mapping<'a>) {
        (self.bio, Self::mapping(b::DM_MAPIO_SUBMITTED))
    }

    /// Sends the bio on to `device`, starting at `sector` there.
    pub fn remap(self, device: &DmDevice, sector: u64) -> Mapping<'a> {
        let bio = self.bio.into_raw().as_ptr();
        // SAFETY: the bio is valid, and the device is open as long as the target lives.
        unsafe { b::rvdo_bio_set_dev(bio, device.block_device()) };
        // SAFETY: the bio is valid, and ours to change until `map` returns.
        unsafe { (*bio).bi_iter.bi_sector = sector };
        Self::mapping(b::DM_MAPIO_REMAPPED)
    }

    /// Lets device mapper end the bio with an I/O error.
    pub fn kill(self) -> Mapping<'a> {
        // It is device mapper's again.
        let _ = self.bio.into_raw();
        Self::mapping(b::DM_MAPIO_KILL)
    }
}

impl Deref for Incoming<'_> {
    type Target = OwnedBio;

    fn deref(&self) -> &OwnedBio {
        &self.bio
    }
}

impl Mapping<'_> {
    pub(super) fn code(&self) -> c_int {
        self.code
    }
}
