//! The pool's invariants whenever its lock is released: each chunk is in exactly one place.
//!
//! An arena that breaks one of these takes no appends, carves and reclaims nothing from then on
//! ([`crate::Arena::take_failure`]): acknowledged bytes stay where they are until they are written.

use super::{Open, Pool};
use crate::layout::{CLASS_BLOCKS, CLASSES};

/// Debug assertions check a whole pool of at most this many chunks each time.
const SMALL: usize = 64;

impl Pool {
    /// Checks that the counts agree, in constant time.
    ///
    /// # Errors
    /// What does not agree, in a sentence.
    #[inline]
    pub fn check(&self) -> Result<(), String> {
        let placed =
            self.free.len() + self.retired.len() + self.queue.len() + self.transient + self.leaving;
        if placed != self.chunks {
            return Err(self.counts());
        }
        if cfg!(debug_assertions) && self.chunks <= SMALL {
            self.check_chunks()?;
        }
        Ok(())
    }

    #[cold]
    fn counts(&self) -> String {
        format!(
            "of {} chunks {} are free, {} carved, {} transient, {} retired and {} on their way",
            self.chunks,
            self.free.len(),
            self.queue.len(),
            self.transient,
            self.retired.len(),
            self.leaving,
        )
    }

    /// Checks each chunk. For an arena that was just reattached, or is about to be left.
    ///
    /// # Errors
    /// The broken invariant, in a sentence.
    pub fn check_chunks(&self) -> Result<(), String> {
        let mut places = vec![0_u8; self.tenants.len()];
        let free = self.free.iter().copied();
        let retired = self.retired.iter().map(|(_, chunk)| *chunk);
        for chunk in free.chain(retired).chain(self.queue.values().copied()) {
            let place = places.get_mut(chunk as usize);
            *place.ok_or_else(|| format!("chunk {chunk} is not known"))? += 1;
        }
        let mut transient = 0;
        for (chunk, (tenants, places)) in self.tenants.iter().zip(&mut places).enumerate() {
            if tenants.transient_blocks > 0 {
                transient += 1;
                *places += 1;
            }
            if *places > 1 {
                return Err(format!("chunk {chunk} is in {places} places"));
            }
            if tenants.is_listed && !self.sparse.contains(&(chunk as u32)) {
                return Err(format!("chunk {chunk} is sparse, but not listed"));
            }
        }
        if transient != self.transient {
            let counted = self.transient;
            return Err(format!(
                "{transient} chunks are transient, {counted} are counted"
            ));
        }
        self.check_queue()?;
        (0..CLASSES).try_for_each(|class| self.check_open(class))
    }

    fn check_queue(&self) -> Result<(), String> {
        for (&order, &chunk) in &self.queue {
            let known = self.tenants[chunk as usize].order;
            if known != Some(order) || order > self.sequence {
                let newest = self.sequence;
                return Err(format!(
                    "chunk {chunk} is number {order} of {newest}, and {known:?} to itself"
                ));
            }
        }
        Ok(())
    }

    /// An open chunk has a block left, and is where chunks of its kind are.
    fn check_open(&self, class: usize) -> Result<(), String> {
        let is_fit = |open: Open, is_transient: bool| {
            let tenants = self.tenants.get(open.chunk as usize);
            let is_placed = tenants.is_some_and(|tenants| match is_transient {
                true => tenants.transient_blocks > 0,
                false => tenants.order.is_some(),
            });
            let has_class = tenants.is_some_and(|tenants| usize::from(tenants.class) == class);
            is_placed && has_class && (1..CLASS_BLOCKS[class]).contains(&usize::from(open.next))
        };
        for (open, is_transient) in [
            (self.open[class], false),
            (self.transient_open[class], true),
        ] {
            if let Some(open) = open
                && !is_fit(open, is_transient)
            {
                return Err(format!("{open:?} of class {class} cannot be carved"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
