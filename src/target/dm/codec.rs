// SPDX-License-Identifier: GPL-2.0

//! The engine's codec over the kernel's acomp drivers.
//!
//! A driver that calls back may be hardware, which can vanish or make mistakes: what it cannot
//! decompress is tried once more with a software driver of the same algorithm.

use core::fmt::Write;
use core::ops::Range;

use kernel::prelude::*;
use kernel::str::CString;

use crate::engine::env::{Codec, CodecError};
use crate::kapi::acomp::{Acomp, Implementations};
use crate::kapi::acomp_pool::AcompPool;
use crate::rt::{Page, PagePair, PAGE_BYTES};

/// Requests that a driver gets at a time. Software ones compute in the caller, so this many only matters to hardware.
const REQUESTS: usize = 256;

/// One algorithm with the driver that serves it.
pub(crate) struct AcompCodec {
    driver: Pin<KBox<AcompPool>>,
    /// A software driver of the same algorithm, if `driver` is not one itself.
    software: Option<Pin<KBox<AcompPool>>>,
}

impl AcompCodec {
    /// The codec for an algorithm or driver called `name`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the kernel has neither. Modules may be loaded to find out, which takes up to half a second.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{}", name))?;
        let acomp = Acomp::new(&name, Implementations::Any)?;
        let software = if acomp.is_async() {
            let algorithm = CString::try_from(acomp.algorithm_name())?;
            let fallback = Acomp::new(&algorithm, Implementations::Synchronous)?;
            Some(AcompPool::new(fallback, REQUESTS)?)
        } else {
            None
        };
        Ok(Self {
            driver: AcompPool::new(acomp, REQUESTS)?,
            software,
        })
    }

    /// Whether the driver calls back.
    pub(crate) fn is_async(&self) -> bool {
        self.software.is_some()
    }
}

impl Codec for AcompCodec {
    fn driver(&self) -> &str {
        self.driver.acomp().driver_name().to_str().unwrap_or("?")
    }

    fn algorithm(&self) -> &str {
        self.driver.acomp().algorithm_name().to_str().unwrap_or("?")
    }

    async fn compress(
        &self,
        src: Page,
        dst: PagePair,
        limit: usize,
    ) -> (Page, PagePair, core::result::Result<usize, CodecError>) {
        let (src, dst, result) = self.driver.compress(src, dst, limit).await;
        let result = match result {
            Ok(bytes) if bytes > 0 && bytes <= limit => Ok(bytes),
            Ok(_) => Err(CodecError::Failed),
            Err(error) => Err(compress_error(error)),
        };
        (src, dst, result)
    }

    async fn decompress(
        &self,
        src: Page,
        range: Range<usize>,
        dst: Page,
    ) -> (Page, Page, core::result::Result<(), CodecError>) {
        let (src, dst, result) = self.driver.decompress(src, range.clone(), dst).await;
        match (result, &self.software) {
            (Ok(PAGE_BYTES), _) => (src, dst, Ok(())),
            (_, Some(software)) => {
                let (src, dst, result) = software.decompress(src, range, dst).await;
                (src, dst, decompressed(result))
            }
            (result, None) => (src, dst, decompressed(result)),
        }
    }
}

fn decompressed(result: Result<usize>) -> core::result::Result<(), CodecError> {
    match result {
        Ok(PAGE_BYTES) => Ok(()),
        _ => Err(CodecError::Corrupt),
    }
}

/// Drivers report a result that does not fit in five ways; what means trouble for certain is the rest.
fn compress_error(error: Error) -> CodecError {
    if [EINVAL, ENOSPC, E2BIG, EOVERFLOW, EIO].contains(&error) {
        CodecError::Incompressible
    } else {
        CodecError::Failed
    }
}

/// Compresses `page` and decompresses it again; says which driver did it, and how well.
///
/// # Errors
///
/// `EIO` if the same bytes do not come back. Otherwise what the driver says.
pub(super) async fn round_trip(codec: &AcompCodec, page: Page, out: &mut dyn Write) -> Result {
    let (original, mut back) = (page, Page::new()?);
    let mut copy = Page::new()?;
    copy.copy_from_slice(&original[..]);
    let (_, packed, result) = codec
        .driver
        .compress(copy, PagePair::new()?, 2 * PAGE_BYTES)
        .await;
    let bytes = result?;
    let mut fragment = Page::new()?;
    let (Some(from), Some(to)) = (packed.get(..bytes), fragment.get_mut(..bytes)) else {
        return Err(E2BIG);
    };
    to.copy_from_slice(from);
    let result;
    (_, back, result) = codec.driver.decompress(fragment, 0..bytes, back).await;
    if result? != PAGE_BYTES || back[..] != original[..] {
        return Err(EIO);
    }
    let ratio_x100 = (PAGE_BYTES * 100).checked_div(bytes).unwrap_or(0);
    write!(
        out,
        "algorithm: {} driver: {} async: {} input_bytes: {} payload_bytes: {} ratio: {}.{:02} result: same",
        codec.algorithm(),
        codec.driver(),
        u8::from(codec.is_async()),
        PAGE_BYTES,
        bytes,
        ratio_x100 / 100,
        ratio_x100 % 100,
    )
    // A text that does not fit is cut, and asked for again.
    .or(Ok(()))
}
