// SPDX-License-Identifier: GPL-2.0

//! Device-mapper targets.
//!
//! A target type is a Rust type that implements [`Target`]; a [`Registration`] makes it known under
//! a name. One type may be registered under several names. Device mapper serialises the calls on
//! one target as follows, and this module adds no lock of its own: [`Target::new`] comes before all
//! others and `Drop` after all others; [`Target::map`], [`Target::status`] and [`Target::message`]
//! may run at any time in between and in parallel; suspending and resuming is done by one thread at
//! a time. All of them may sleep, but [`Target::map`] may be called under memory reclaim.
//!
//! C header: [`include/linux/device-mapper.h`](srctree/include/linux/device-mapper.h)
//!
//! # Examples
//!
//! ```ignore
//! struct Linear { device: DeviceId }
//!
//! #[vtable]
//! impl Target for Linear {
//!     const VERSION: [u32; 3] = [1, 0, 0];
//!
//!     type Shared = ();
//!
//!     fn new(ti: &mut Constructor<'_>, _shared: &Arc<()>) -> Result<Self> {
//!         let (1, Some(path)) = (ti.args().len(), ti.args().get(0)) else {
//!             return Err(ti.fail(EINVAL, fmt!("expected one word: the device")));
//!         };
//!         let device = ti
//!             .open_device(path)
//!             .map_err(|e| ti.fail(e, fmt!("cannot open {}", path)))?;
//!         ti.set_flush_bios(1);
//!         Ok(Self { device })
//!     }
//!
//!     fn map<'a>(&self, ti: &Instance<'_>, bio: Incoming<'a>) -> Mapping<'a> {
//!         match ti.device(self.device) {
//!             Ok(device) => { let sector = ti.offset(bio.sector()); bio.remap(device, sector) }
//!             Err(_) => bio.kill(),
//!         }
//!     }
//! }
//!
//! let registration = Registration::<Linear>::new(c"my-linear", &THIS_MODULE, Arc::new((), GFP_KERNEL)?)?;
//! ```

mod args;
mod constructor;
mod device;
mod error_text;
mod instance;
mod limits;
mod map;
mod registration;
mod result_text;

pub use self::args::Args;
pub use self::constructor::Constructor;
pub use self::device::{DeviceId, DmDevice, Mode};
pub use self::instance::{Callout, Instance, MappedDevice};
pub use self::limits::QueueLimits;
pub use self::map::{Incoming, Mapping};
pub use self::registration::{Features, Registration};
pub use self::result_text::ResultText;

use kernel::prelude::*;
use kernel::sync::Arc;

/// What [`Target::status`] is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// The state of the target (`dmsetup status`).
    Info,
    /// The words of the table line after the target's name (`dmsetup table`).
    Table,
    /// What the integrity subsystem measures.
    Ima,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; there is nothing to tell.
    Done,
    /// Done; the answer is in the buffer.
    Text,
}

/// A device-mapper target, see the [module's documentation](self).
#[vtable]
pub trait Target: Send + Sync + Sized + 'static {
    /// Major, minor and patch level as user space sees them.
    const VERSION: [u32; 3];

    /// What device mapper has to know about the type.
    const FEATURES: Features = Features::NONE;

    /// What all targets of the type have in common.
    type Shared: Send + Sync;

    /// Makes a target from a table line (`ctr`).
    ///
    /// Devices that were opened are closed if this fails, and after the target was dropped (`dtr`)
    /// if it does not.
    fn new(ti: &mut Constructor<'_>, shared: &Arc<Self::Shared>) -> Result<Self>;

    /// Decides what happens to a bio.
    fn map<'a>(&self, ti: &Instance<'_>, bio: Incoming<'a>) -> Mapping<'a>;

    /// Writes the status. With `noflush` the target should not start I/O to give accurate numbers.
    fn status(
        &self,
        _ti: &Instance<'_>,
        _kind: StatusKind,
        _noflush: bool,
        _out: &mut ResultText<'_>,
    ) {
    }

    /// Carries out a message. If the text did not fit, user space sends the message again with a
    /// larger buffer.
    fn message(
        &self,
        _ti: &Instance<'_>,
        _args: Args<'_>,
        _out: &mut ResultText<'_>,
    ) -> Result<Reply> {
        Err(EINVAL)
    }

    /// The device is about to be suspended; I/O still arrives.
    fn presuspend(&self, _ti: &Instance<'_>) {}

    /// Suspending was given up after [`presuspend`](Self::presuspend).
    fn presuspend_undo(&self, _ti: &Instance<'_>) {}

    /// All I/O has ended, and none arrives until [`resume`](Self::resume).
    fn postsuspend(&self, _ti: &Instance<'_>) {}

    /// The device is about to be resumed. An error keeps it suspended.
    fn preresume(&self, _ti: &Instance<'_>) -> Result {
        Ok(())
    }

    /// The device is resumed; I/O arrives.
    fn resume(&self, _ti: &Instance<'_>) {}

    /// Calls `callout` for every part of a device that the target uses, until that returns
    /// something other than zero, and returns the last answer.
    fn iterate_devices(&self, _ti: &Instance<'_>, _callout: &Callout<'_>) -> c_int {
        0
    }

    /// Changes the limits that were derived from the devices below.
    fn io_hints(&self, _ti: &Instance<'_>, _limits: &mut QueueLimits<'_>) {}
}
