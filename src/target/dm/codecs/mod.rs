// SPDX-License-Identifier: GPL-2.0

//! The engine's codec over the kernel's compression drivers.
//!
//! Which driver compresses, and which is asked first to decompress a format, is a [`Selection`]: it is made from the table line
//! or from a message by opening drivers, which may sleep and load modules, and is put into use at once. Behind it there is always a
//! software driver for each format that the volume may hold. One lock guards which drivers are in use; it is held to copy a
//! reference. A driver that is replaced goes when the last call to it is over.
//!
//! | file       | owns                                                              |
//! |------------|-------------------------------------------------------------------|
//! | `driver`   | one driver: requests, trust, figures                              |
//! | `estimate` | the `compress-estimate` message                                   |

mod driver;
mod estimate;

use core::ops::Range;

use kernel::prelude::*;

use self::driver::{Driver, OpenFailure, Outcome};
use crate::engine::env::{Codec, CodecError, Compressed};
use crate::engine::format::StreamFormat;
use crate::kapi::block_on::block_on;
use crate::rt::{self, spin_lock, Page, PagePair, SpinLock};
use crate::target::compression_type::CompressionType;
use crate::target::driver_list::{compressors, Candidate, DriverList};
use crate::target::figures::Figures;
use crate::target::table_options::TableOptions;

/// Drivers whose figures are kept.
const FIGURES_MAX: usize = 32;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) compression_type: CompressionType,
    pub(super) compression: DriverList,
    pub(super) decompression: DriverList,
}

impl Wish {
    pub(super) fn of(options: &TableOptions) -> Self {
        Self {
            compression_type: options.compression_type.unwrap_or_default(),
            compression: options.compress_accelerators,
            decompression: options.decompress_accelerators,
        }
    }
}

/// The drivers for a wish.
pub(super) struct Selection {
    wish: Wish,
    compressor: rt::Arc<Driver>,
    /// What to ask before software, by format.
    decompressors: [Option<rt::Arc<Driver>>; StreamFormat::COUNT],
}

impl Selection {
    pub(super) fn format(&self) -> StreamFormat {
        self.compressor.format()
    }
}

/// Why there are no drivers for a wish.
pub(super) enum Refusal {
    /// Nothing of that name, and no known format to find another driver for.
    Unknown(CompressionType),
    /// The option after the colon cannot be had.
    Option(CompressionType),
    /// No driver of the format works.
    NoDriver(StreamFormat),
    /// The kernel refuses something.
    Kernel(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Kernel(error)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unknown(wanted) => write!(
                f,
                "compressionType {wanted} must name an lz4, deflate or zstd driver that this kernel has"
            ),
            Self::Option(wanted) => write!(
                f,
                "compressionType {wanted}: this compression driver has no option to set, ask for {}",
                wanted.algorithm()
            ),
            Self::NoDriver(format) => write!(
                f,
                "no driver for {} works in this kernel: load one (modprobe {})",
                format.name(),
                format.name()
            ),
            Self::Kernel(_) => f.write_str("cannot allocate what a compression driver needs"),
        }
    }
}

struct Slots {
    /// `None` before the first selection.
    selection: Option<Selection>,
    /// Drivers that compute on the CPU, by format.
    software: [Option<rt::Arc<Driver>>; StreamFormat::COUNT],
}

/// The compression drivers of one volume.
pub(crate) struct Codecs {
    slots: SpinLock<Slots>,
    figures: SpinLock<rt::Vec<rt::Arc<Figures>>>,
}

impl Codecs {
    /// No driver is open.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            slots: spin_lock!(Slots {
                selection: None,
                software: [const { None }; StreamFormat::COUNT],
            })?,
            figures: spin_lock!(rt::Vec::with_capacity(FIGURES_MAX)?)?,
        })
    }

    /// The figures of a driver, new or from the last time it was used.
    fn figures_of(&self, name: &str) -> Result<rt::Arc<Figures>> {
        let known = |all: &rt::Vec<rt::Arc<Figures>>| {
            all.iter().find(|figures| figures.name() == name).cloned()
        };
        if let Some(figures) = known(&self.figures.lock()) {
            return Ok(figures);
        }
        let new = rt::Arc::new(Figures::new(name))?;
        let mut all = self.figures.lock();
        if let Some(figures) = known(&all) {
            return Ok(figures);
        }
        // When there are too many, the newest are counted without being shown.
        let _ = all.push_within_capacity(new.clone());
        Ok(new)
    }

    /// Calls `show` with the figures of all drivers so far.
    pub(super) fn figures(&self) -> Result<KVec<rt::Arc<Figures>>> {
        let mut copy = KVec::with_capacity(FIGURES_MAX, GFP_KERNEL)?;
        for figures in self.figures.lock().iter() {
            let _ = copy.push_within_capacity(figures.clone());
        }
        Ok(copy)
    }

    fn open(&self, candidate: Candidate<'_>) -> core::result::Result<Driver, OpenFailure> {
        let driver = Driver::open(candidate, |name| self.figures_of(name))?;
        let passed = block_on(driver.passes_self_test())
            .map_err(Error::from)
            .and_then(|passed| passed)
            .map_err(OpenFailure::Absent)?;
        if passed {
            Ok(driver)
        } else {
            rt::error!(
                "{} does not decompress what it has to, and is not used",
                driver.name()
            );
            Err(OpenFailure::SelfTest)
        }
    }

    /// Makes sure that blocks of `format` can be read and written by software.
    pub(super) fn open_software(&self, format: StreamFormat) -> core::result::Result<(), Refusal> {
        if self.software(format).is_some() {
            return Ok(());
        }
        let driver =
            self.open(Candidate::Software(format.name()))
                .map_err(|failure| match failure {
                    OpenFailure::Absent(ENOMEM) => Refusal::Kernel(ENOMEM),
                    _ => Refusal::NoDriver(format),
                })?;
        let driver = rt::Arc::new(driver).map_err(Error::from)?;
        let old = match self.slots.lock().software.get_mut(format.index()) {
            Some(slot) => slot.replace(driver),
            None => None,
        };
        // Somebody else may have opened one meanwhile. It is freed without the lock: that may sleep.
        drop(old);
        Ok(())
    }

    fn software(&self, format: StreamFormat) -> Option<rt::Arc<Driver>> {
        let slots = self.slots.lock();
        slots.software.get(format.index())?.clone()
    }

    /// Opens the drivers for `wish`. They are not in use yet.
    pub(super) fn select(&self, wish: &Wish) -> core::result::Result<Selection, Refusal> {
        let wanted = &wish.compression_type;
        if wanted.option().is_some() && wanted.stored_as(None) != Ok(StreamFormat::Lz4) {
            return Err(Refusal::Option(*wanted));
        }
        let format = match wanted.stored_as(None) {
            Ok(format) => format,
            // A driver that only the kernel knows: it says itself what it is.
            Err(_) => match self.open(Candidate::Any(wanted.algorithm())) {
                Ok(driver) => driver.format(),
                Err(_) => return Err(Refusal::Unknown(*wanted)),
            },
        };
        self.open_software(format)?;
        let compressor = self.select_compressor(wish, format)?;
        let mut decompressors = [const { None }; StreamFormat::COUNT];
        if wish.decompression.is_automatic() {
            if compressor.is_async() {
                if let Some(slot) = decompressors.get_mut(format.index()) {
                    *slot = Some(compressor.clone());
                }
            }
        } else {
            for name in wish.decompression.names() {
                self.select_decompressor(name, &compressor, &mut decompressors)?;
            }
        }
        Ok(Selection {
            wish: *wish,
            compressor,
            decompressors,
        })
    }

    fn select_compressor(
        &self,
        wish: &Wish,
        format: StreamFormat,
    ) -> core::result::Result<rt::Arc<Driver>, Refusal> {
        let wanted = wish.compression_type.algorithm();
        for candidate in compressors(&wish.compression_type, &wish.compression, format) {
            if candidate == Candidate::Software(format.name()) {
                break;
            }
            match self.open(candidate) {
                Ok(driver) if driver.format() == format => {
                    let as_asked = driver.name() == wanted
                        || driver.algorithm() == wanted
                        || matches!(candidate, Candidate::AcceleratedLz4(_));
                    if !as_asked {
                        rt::info!(
                            "compressionType {}: compressing with {}",
                            wish.compression_type,
                            driver.name()
                        );
                    }
                    return Ok(rt::Arc::new(driver).map_err(Error::from)?);
                }
                Err(OpenFailure::Absent(ENOMEM)) => return Err(Refusal::Kernel(ENOMEM)),
                Ok(_) | Err(_) => {}
            }
        }
        let software = self.software(format).ok_or(Refusal::NoDriver(format))?;
        if wanted != format.name() && wanted != software.name() {
            rt::warn!(
                "compressionType {}: there is no such driver now, compressing with {}",
                wish.compression_type,
                software.name()
            );
        }
        Ok(software)
    }

    fn select_decompressor(
        &self,
        name: &str,
        compressor: &rt::Arc<Driver>,
        decompressors: &mut [Option<rt::Arc<Driver>>; StreamFormat::COUNT],
    ) -> core::result::Result<(), Refusal> {
        let driver = if compressor.name() == name {
            compressor.clone()
        } else {
            match self.open(Candidate::Any(name)) {
                Ok(driver) => rt::Arc::new(driver).map_err(Error::from)?,
                Err(_) => {
                    rt::warn!("there is no driver {} to decompress with now", name);
                    return Ok(());
                }
            }
        };
        if let Some(slot @ None) = decompressors.get_mut(driver.format().index()) {
            *slot = Some(driver);
        }
        Ok(())
    }

    /// Compresses and decompresses with `selection` from now on.
    pub(super) fn install(&self, selection: Selection) {
        let old = self.slots.lock().selection.replace(selection);
        // Freed without the lock: a driver may have to be waited for.
        drop(old);
    }

    /// What is in use: the wish, the driver, its algorithm and so on, by way of `show`.
    pub(super) fn current<T>(&self, show: impl FnOnce(&InUse<'_>) -> T) -> Option<T> {
        let (wish, compressor) = {
            let slots = self.slots.lock();
            let selection = slots.selection.as_ref()?;
            (selection.wish, selection.compressor.clone())
        };
        Some(show(&InUse {
            wish,
            driver: compressor.name(),
            algorithm: compressor.algorithm(),
            format: compressor.format(),
            is_async: compressor.is_async(),
            is_backing_off: compressor.is_backing_off(),
        }))
    }

    fn compressor(&self) -> Option<rt::Arc<Driver>> {
        let slots = self.slots.lock();
        Some(slots.selection.as_ref()?.compressor.clone())
    }

    /// The drivers to decompress `format` with: what is preferred, and software.
    fn decompressors(
        &self,
        format: StreamFormat,
    ) -> (Option<rt::Arc<Driver>>, Option<rt::Arc<Driver>>) {
        let slots = self.slots.lock();
        let preferred = slots
            .selection
            .as_ref()
            .and_then(|selection| selection.decompressors.get(format.index())?.clone());
        let software = slots
            .software
            .get(format.index())
            .and_then(|slot| slot.clone());
        (preferred, software)
    }
}

/// What compresses now.
pub(super) struct InUse<'a> {
    pub(super) wish: Wish,
    pub(super) driver: &'a str,
    pub(super) algorithm: &'a str,
    pub(super) format: StreamFormat,
    pub(super) is_async: bool,
    pub(super) is_backing_off: bool,
}

impl Codec for Codecs {
    async fn compress(
        &self,
        src: Page,
        dst: PagePair,
    ) -> (Page, PagePair, core::result::Result<Compressed, CodecError>) {
        let Some(driver) = self.compressor() else {
            return (src, dst, Err(CodecError::Unknown));
        };
        let format = driver.format();
        let made = |bytes| Ok(Compressed { format, bytes });
        let (src, dst, outcome) = driver.compress(src, dst).await;
        let error = match outcome {
            Outcome::Done(bytes) => return (src, dst, made(bytes)),
            Outcome::DoesNotFit if !driver.is_suspicious() => CodecError::Incompressible,
            Outcome::DoesNotFit | Outcome::Trouble | Outcome::NotAsked | Outcome::Corrupt
                if driver.is_async() =>
            {
                let Some(software) = self.software(format) else {
                    return (src, dst, Err(CodecError::Failed));
                };
                driver.figures().fallbacks.increment();
                let (src, dst, second) = software.compress(src, dst).await;
                let result = match second {
                    Outcome::Done(bytes) => {
                        if matches!(outcome, Outcome::DoesNotFit) {
                            // It was not the data.
                            driver.failed(true);
                        }
                        made(bytes)
                    }
                    Outcome::DoesNotFit => Err(CodecError::Incompressible),
                    _ => Err(CodecError::Failed),
                };
                return (src, dst, result);
            }
            _ => CodecError::Failed,
        };
        (src, dst, Err(error))
    }

    async fn decompress(
        &self,
        format: StreamFormat,
        src: Page,
        range: Range<usize>,
        dst: Page,
    ) -> (Page, Page, core::result::Result<(), CodecError>) {
        let (preferred, software) = self.decompressors(format);
        let (mut src, mut dst) = (src, dst);
        if let Some(driver) = &preferred {
            let outcome;
            (src, dst, outcome) = driver.decompress(src, range.clone(), dst).await;
            if let Outcome::Done(()) = outcome {
                return (src, dst, Ok(()));
            }
            driver.figures().fallbacks.increment();
            let Some(software) = software else {
                return (src, dst, Err(CodecError::Failed));
            };
            let second;
            (src, dst, second) = software.decompress(src, range, dst).await;
            let result = decompressed(&second);
            if result.is_ok() && matches!(outcome, Outcome::Corrupt) {
                // The data was good.
                driver.failed(false);
            }
            return (src, dst, result);
        }
        let Some(software) = software else {
            return (src, dst, Err(CodecError::Unknown));
        };
        let (src, dst, outcome) = software.decompress(src, range, dst).await;
        (src, dst, decompressed(&outcome))
    }
}

fn decompressed(outcome: &Outcome<()>) -> core::result::Result<(), CodecError> {
    match outcome {
        Outcome::Done(()) => Ok(()),
        Outcome::Corrupt | Outcome::DoesNotFit => Err(CodecError::Corrupt),
        Outcome::Trouble | Outcome::NotAsked => Err(CodecError::Failed),
    }
}

/// What the `selftest` message does: opens a driver of that name, which tests it, and says how well it compresses.
pub(super) fn self_test(name: &str, out: &mut dyn core::fmt::Write) -> Result {
    let codecs = Codecs::new()?;
    let driver = codecs
        .open(Candidate::Any(name))
        .map_err(|failure| match failure {
            OpenFailure::Absent(error) => error,
            OpenFailure::UnknownFormat => EINVAL,
            OpenFailure::SelfTest => EIO,
        })?;
    if driver.is_backing_off() {
        return Err(EIO);
    }
    let figures = driver.figures();
    let (input, payload) = (figures.input_bytes.get(), figures.payload_bytes.get());
    let ratio_x100 = (input * 100).checked_div(payload).unwrap_or(0);
    write!(
        out,
        "algorithm: {} driver: {} async: {} input_bytes: {} payload_bytes: {} ratio: {}.{:02} result: same",
        driver.algorithm(),
        driver.name(),
        u8::from(driver.is_async()),
        input,
        payload,
        ratio_x100 / 100,
        ratio_x100 % 100,
    )
    // A text that does not fit is cut, and asked for again.
    .or(Ok(()))
}
