// SPDX-License-Identifier: GPL-2.0

//! Making a target from a table line.

use core::ptr::NonNull;

use kernel::error::to_result;
use kernel::prelude::*;

use super::args::Args;
use super::device::{DeviceId, DeviceTable, DmDevice};
use super::error_text::ErrorTexts;
use super::instance::Instance;
use crate::bindings as b;

/// A target in the making.
///
/// # Invariants
///
/// `ti` is valid for `'a`, and changed by nobody else.
pub struct Constructor<'a> {
    ti: NonNull<b::dm_target>,
    args: Args<'a>,
    devices: &'a mut DeviceTable,
    errors: &'a ErrorTexts,
}

impl<'a> Constructor<'a> {
    /// # Safety
    ///
    /// `ti` is valid for `'a`, and changed by nobody else.
    pub(super) unsafe fn new(
        ti: NonNull<b::dm_target>,
        args: Args<'a>,
        devices: &'a mut DeviceTable,
        errors: &'a ErrorTexts,
    ) -> Self {
        // INVARIANT: by the contract.
        Self {
            ti,
            args,
            devices,
            errors,
        }
    }

    fn raw(&mut self) -> &mut b::dm_target {
        // SAFETY: the target is valid and ours by the type's invariants.
        unsafe { self.ti.as_mut() }
    }

    /// Where the target is in its table, and what it has opened.
    pub fn instance(&self) -> Instance<'_> {
        // INVARIANT: the target is valid as long as `self` is.
        Instance {
            ti: self.ti,
            devices: self.devices,
        }
    }

    /// The words of the table line after the target's name.
    pub fn args(&self) -> Args<'a> {
        self.args
    }

    /// Leaves a text for the log that says why the constructor fails; returns `error` for it to
    /// return.
    ///
    /// The text should speak to the person who wrote the table line. It is cut off after 255 bytes.
    pub fn fail(&mut self, error: Error, text: core::fmt::Arguments<'_>) -> Error {
        let text = self.errors.write(text);
        self.raw().error = text;
        error
    }

    /// Opens a device, given by its path or as `major:minor`, in the mode of the table.
    pub fn open_device(&mut self, path: &CStr) -> Result<DeviceId> {
        let mode = self.instance().mode();
        self.devices.open(path, mode)
    }

    /// A device that was opened before.
    pub fn device(&self, id: DeviceId) -> Result<&DmDevice> {
        self.devices.get(id)
    }

    /// Has bios split so that none is longer than `sectors` or crosses a multiple of it.
    pub fn set_max_io_sectors(&mut self, sectors: u64) -> Result {
        // SAFETY: the target is valid and ours by the type's invariants.
        to_result(unsafe { b::dm_set_target_max_io_len(self.ti.as_ptr(), sectors) })
    }

    /// Sets how many copies of each flush the target gets.
    pub fn set_flush_bios(&mut self, count: c_uint) {
        self.raw().num_flush_bios = count;
    }

    /// Sets how many copies of each discard the target gets.
    pub fn set_discard_bios(&mut self, count: c_uint) {
        self.raw().num_discard_bios = count;
    }

    /// The target wants flushes whether or not the devices below do.
    pub fn support_flush(&mut self) {
        self.raw().set_flush_supported(true);
    }

    /// The target wants discards whether or not the devices below do.
    pub fn support_discards(&mut self) {
        self.raw().set_discards_supported(true);
    }

    /// Limits how many bios swapping can have in flight at a time.
    pub fn limit_swap_bios(&mut self) {
        self.raw().set_limit_swap_bios(true);
    }
}
