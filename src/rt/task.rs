// SPDX-License-Identifier: GPL-2.0

//! Task combinators that need nothing but `core`.

use core::future::{poll_fn, Future};
use core::pin::{pin, Pin};
use core::task::{Context, Poll};

/// Lets the other ready tasks run before this one goes on.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    poll_fn(move |cx: &mut Context<'_>| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Runs two futures in one task until both are done.
///
/// Each is polled at every wake-up of the task until it is ready, `a` before `b`.
pub async fn join2<A, B>(a: A, b: B) -> (A::Output, B::Output)
where
    A: Future,
    B: Future,
{
    let mut a = Branch {
        future: pin!(a),
        output: None,
    };
    let mut b = Branch {
        future: pin!(b),
        output: None,
    };
    poll_fn(move |cx| {
        a.advance(cx);
        b.advance(cx);
        // Both outputs are taken only when both are there.
        if a.output.is_some() && b.output.is_some() {
            if let (Some(a), Some(b)) = (a.output.take(), b.output.take()) {
                return Poll::Ready((a, b));
            }
        }
        Poll::Pending
    })
    .await
}

/// One of the futures of [`join2`] and, once it is there, its output.
struct Branch<'a, F: Future> {
    future: Pin<&'a mut F>,
    output: Option<F::Output>,
}

impl<F: Future> Branch<'_, F> {
    fn advance(&mut self, cx: &mut Context<'_>) {
        if self.output.is_none() {
            if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
                self.output = Some(output);
            }
        }
    }
}
