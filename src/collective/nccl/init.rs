//! How the ranks agree on NCCL and join its communicator, by the communicator of their hosts.
//!
//! Three exchanges, which all ranks make whatever happens to them, so that none is left waiting: what each rank has; rank
//! 0's unique id; who has joined. When one can't join, all give up what they have and go by the hosts' memory.

use std::sync::Arc;

use super::super::communicator::{Collective, Communicator};
use super::super::error::CollectiveError;
use super::choice::{Facts, NUMBERS, failed, nccl_or_why_not, table};
use super::comm::{Comm, Seat};
use super::error::NcclError;
use super::group::{BackendPreference, DeviceGroupOptions};
use super::library::{Library, UniqueId};

/// Numbers that the unique id travels as: whether there is one, then its bytes.
const ID: usize = 1 + 128 / 8;

/// A joined communicator; or, on all ranks alike, none, and why not.
pub(super) fn init_comm(
    options: DeviceGroupOptions,
    host: &mut dyn Communicator,
) -> Result<Result<Comm, String>, CollectiveError> {
    let rank = host.rank();
    let needed = options.preference == BackendPreference::Nccl;
    let own_fault = options.library.as_ref().err().map(ToString::to_string);
    let gpu = options.device.id().map_err(|error| error.on(rank))?;
    let nccl = options.library.as_ref().map_or(0, Library::version_code);
    let facts = Facts { nccl, gpu, staging: options.preference == BackendPreference::Staging };
    let ranks = exchange(host, facts.numbers())?;
    let joined = match nccl_or_why_not(&table(&ranks)) {
        Ok(()) => join(options, host)?,
        // This rank's own words say more than its number.
        Err(why) => Err(own_fault.map_or(why.clone(), |fault| format!("{why}: {fault}"))),
    };
    match joined {
        Err(reason) if needed => {
            Err(CollectiveError::System { rank, what: "NCCL was asked for and can't be had", reason })
        }
        joined => Ok(joined),
    }
}

fn join(
    options: DeviceGroupOptions,
    host: &mut dyn Communicator,
) -> Result<Result<Comm, String>, CollectiveError> {
    let Ok(library) = options.library.map(Arc::new) else { return Ok(Err("no NCCL".to_owned())) };
    let seat = Seat { rank: host.rank(), world: host.world() };
    let made = if seat.rank == 0 { Some(library.unique_id()) } else { None };
    let mut numbers = match &made {
        Some(Ok(id)) => id_numbers(id),
        Some(Err(_)) | None => [0; ID],
    };
    host.broadcast(0, &mut numbers)?;
    let Some(id) = numbers_id(&numbers) else {
        let own = made.and_then(Result::err).map(|error| error.to_string());
        return Ok(Err(own.unwrap_or_else(|| "rank 0 can't make a unique id; its log says why".to_owned())));
    };
    let joined = Comm::join(library, &options.device, id, seat, options.clock, options.limits);
    let marks = exchange(host, [i64::from(joined.is_ok())])?;
    let others = failed(&marks);
    match (joined, others.first()) {
        (Ok(comm), None) => Ok(Ok(comm)),
        (Ok(mut comm), Some(other)) => {
            let why = NcclError::Nccl {
                what: "join the communicator",
                reason: format!("rank {other} could not; its log says why"),
            };
            // An abort that hangs is no reason to go on beside it.
            match comm.abort(why) {
                hung @ NcclError::Hung { .. } => Err(hung.on(seat.rank)),
                why => Ok(Err(why.to_string())),
            }
        }
        (Err(hung @ NcclError::Hung { .. }), _) => Err(hung.on(seat.rank)),
        (Err(error), _) => Ok(Err(error.to_string())),
    }
}

/// Every rank's numbers, in the order of ranks.
fn exchange<const N: usize>(host: &mut dyn Communicator, own: [i64; N]) -> Result<Vec<i64>, CollectiveError> {
    const { assert!(N <= NUMBERS) };
    let (rank, world) = (host.rank() as usize, host.world() as usize);
    let mut all = vec![0; world * N];
    all[rank * N..][..N].copy_from_slice(&own);
    host.allgather(&mut all)?;
    Ok(all)
}

fn id_numbers(id: &UniqueId) -> [i64; ID] {
    let mut numbers = [1; ID];
    let (words, _) = id.0.as_chunks::<8>();
    for (number, word) in numbers[1..].iter_mut().zip(words) {
        *number = i64::from_le_bytes(*word);
    }
    numbers
}

fn numbers_id(numbers: &[i64; ID]) -> Option<UniqueId> {
    let mut id = UniqueId([0; 128]);
    let (words, _) = id.0.as_chunks_mut::<8>();
    for (word, number) in words.iter_mut().zip(&numbers[1..]) {
        *word = number.to_le_bytes();
    }
    (numbers[0] == 1).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_way_and_none_is_none() {
        let id = UniqueId(std::array::from_fn(|at| (at * 7) as u8));
        assert_eq!(numbers_id(&id_numbers(&id)).unwrap().0, id.0);
        assert!(numbers_id(&[0; ID]).is_none());
    }
}
