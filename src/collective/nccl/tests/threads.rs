//! Ranks that are threads of the test: a communicator without sockets, for what is above one.

use std::sync::{Arc, Condvar, Mutex};

use super::super::super::buffer::{self, Buffer, Work};
use super::super::super::communicator::{Communicator, chunk};
use super::super::super::element::{DType, Reduce, Values};
use super::super::super::error::CollectiveError;
use super::super::super::flight::Flight;
use super::super::super::op::{OpTiming, Transport};

#[derive(Default)]
struct Table {
    brought: Vec<Option<Vec<u8>>>,
    taken: usize,
    round: u64,
}

/// One rank of several.
pub(super) struct Threads {
    rank: u32,
    world: u32,
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Threads {
    /// All ranks of a group.
    pub(super) fn group(world: u32) -> Vec<Self> {
        let table = Table { brought: vec![None; world as usize], ..Table::default() };
        let table = Arc::new((Mutex::new(table), Condvar::new()));
        (0..world).map(|rank| Self { rank, world, table: Arc::clone(&table) }).collect()
    }

    /// Every rank's bytes, in the order of ranks.
    fn exchange(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let (table, changed) = &*self.table;
        let mut table = table.lock().unwrap();
        // The slot of the former exchange has to be empty before it is used again.
        table = changed.wait_while(table, |table| table.brought[self.rank as usize].is_some()).unwrap();
        let round = table.round;
        table.brought[self.rank as usize] = Some(own.to_vec());
        changed.notify_all();
        table = changed
            .wait_while(table, |table| table.round == round && table.brought.iter().any(Option::is_none))
            .unwrap();
        let all: Vec<Vec<u8>> = table.brought.iter().flatten().cloned().collect();
        table.taken += 1;
        if table.taken == self.world as usize {
            table.taken = 0;
            table.round += 1;
            table.brought.iter_mut().for_each(|one| *one = None);
        }
        changed.notify_all();
        drop(changed.wait_while(table, |table| table.round == round).unwrap());
        assert!(all.iter().all(|one| one.len() == own.len()), "the ranks have diverged");
        all
    }
}

fn reduce(dtype: DType, how: Reduce, into: &mut [u8], from: &[u8]) {
    macro_rules! each {
        ($type:ty) => {{
            let from = bytemuck::cast_slice::<u8, $type>(from);
            for (into, from) in bytemuck::cast_slice_mut::<u8, $type>(into).iter_mut().zip(from) {
                *into = match how {
                    Reduce::Sum | Reduce::Mean => *into + *from,
                    Reduce::Min => (*into).min(*from),
                    Reduce::Max => (*into).max(*from),
                };
            }
        }};
    }
    match dtype {
        DType::I64 => each!(i64),
        DType::F32 => each!(f32),
        DType::F64 => each!(f64),
        other => panic!("no test adds {other}"),
    }
}

impl Communicator for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.world
    }

    fn transport(&self) -> Transport {
        Transport::Shm
    }

    fn allreduce_values(&mut self, mut values: Values<'_>, how: Reduce) -> Result<OpTiming, CollectiveError> {
        let dtype = values.dtype();
        let own = values.bytes();
        let all = self.exchange(own);
        own.copy_from_slice(&all[0]);
        all[1..].iter().for_each(|from| reduce(dtype, how, own, from));
        Ok(OpTiming { wait: 10, transfer: 20 })
    }

    fn reduce_scatter_values(
        &mut self,
        values: Values<'_>,
        how: Reduce,
    ) -> Result<OpTiming, CollectiveError> {
        self.allreduce_values(values, how)
    }

    fn allgather_values(&mut self, mut values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        let (size, len) = (values.dtype().size(), values.len());
        let all = self.exchange(values.bytes());
        for (rank, from) in all.iter().enumerate() {
            let part = chunk(rank, self.world as usize, len);
            let part = part.start * size..part.end * size;
            values.bytes()[part.clone()].copy_from_slice(&from[part]);
        }
        Ok(OpTiming::default())
    }

    fn broadcast_values(&mut self, root: u32, mut values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        let all = self.exchange(values.bytes());
        values.bytes().copy_from_slice(&all[root as usize]);
        Ok(OpTiming { wait: 1, transfer: 2 })
    }

    fn barrier(&mut self) -> Result<OpTiming, CollectiveError> {
        self.exchange(&[]);
        Ok(OpTiming::default())
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer<u8>, CollectiveError> {
        Ok(buffer::heap(bytes))
    }

    fn begin(&mut self, mut buffer: Buffer<u8>, dtype: DType, how: Reduce) -> Result<Work, CollectiveError> {
        let own = buffer.to_vec();
        let all = self.exchange(&own);
        buffer.copy_from_slice(&all[0]);
        all[1..].iter().for_each(|from| reduce(dtype, how, &mut buffer, from));
        Ok(Work::done(Ok((buffer, OpTiming { wait: 10, transfer: 20 }))))
    }

    fn flight(&mut self) -> Flight {
        Flight::default()
    }
}
