//! What a rank learns from its environment: its place, where the others meet, the run's secret, the report file.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::error::WorkerError;
use crate::clock;
use crate::collective::{GroupConfig, Secret, TransportPreference};

/// Deadline of the rendezvous and of each operation when `HVTUI_TIMEOUT_S` does not say otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// A rank's environment, checked.
#[derive(Debug, Clone)]
pub struct RankEnv {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks in all.
    pub world: u32,
    /// `gpu-a:2`, if known.
    pub place: Option<String>,
    /// Where reports go, if anywhere.
    pub report: Option<PathBuf>,
    /// How to meet the other ranks; `None` for a single one.
    pub group: Option<GroupConfig>,
}

impl RankEnv {
    /// From this process's environment.
    pub fn from_process() -> Result<Self, WorkerError> {
        Self::from_lookup(&|name| std::env::var_os(name))
    }

    /// From any environment. Without `RANK` and `WORLD_SIZE`: a single rank.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, WorkerError> {
        let text = |name: &'static str| match lookup(name) {
            None => Ok(None),
            Some(value) => value.into_string().map(Some).map_err(|value| WorkerError::Variable {
                name,
                value: value.to_string_lossy().into_owned(),
                must_be: "text".to_owned(),
            }),
        };
        let place = text("HVTUI_PLACE")?;
        let report = lookup("HVTUI_REPORT").filter(|path| !path.is_empty()).map(PathBuf::from);
        let (rank, world) = match (text("RANK")?, text("WORLD_SIZE")?) {
            (None, None) => return Ok(Self { rank: 0, world: 1, place, report, group: None }),
            (Some(_), None) => return Err(missing("WORLD_SIZE", "RANK")),
            (None, Some(_)) => return Err(missing("RANK", "WORLD_SIZE")),
            (Some(rank), Some(world)) => (rank, world),
        };
        let world: u32 = parse("WORLD_SIZE", &world, "a number of ranks, at least 1")?;
        let rank: u32 = parse("RANK", &rank, "a rank's number, from 0")?;
        if world == 0 {
            return Err(wrong("WORLD_SIZE", "0", "a number of ranks, at least 1"));
        }
        if rank >= world {
            return Err(wrong("RANK", &rank.to_string(), &format!("less than WORLD_SIZE, which is {world}")));
        }
        if world == 1 {
            return Ok(Self { rank, world, place, report, group: None });
        }
        let needed = |name: &'static str| text(name)?.ok_or_else(|| missing(name, "WORLD_SIZE"));
        let secret = needed("HVTUI_SECRET")?;
        let timeout = text("HVTUI_TIMEOUT_S")?
            .map(|value| {
                let seconds: u32 = parse("HVTUI_TIMEOUT_S", &value, "a whole number of seconds, at least 1")?;
                if seconds == 0 {
                    return Err(wrong("HVTUI_TIMEOUT_S", "0", "a whole number of seconds, at least 1"));
                }
                Ok(Duration::from_secs(seconds.into()))
            })
            .transpose()?
            .unwrap_or(TIMEOUT);
        let bind = text("HVTUI_BIND")?
            .map(|value| {
                let must_be = "one IP address of this host";
                let ip: IpAddr = parse("HVTUI_BIND", &value, must_be)?;
                // The others are told this address; and a port of ours is open on the run's interface only.
                if ip.is_unspecified() { Err(wrong("HVTUI_BIND", &value, must_be)) } else { Ok(ip) }
            })
            .transpose()?;
        // Other launchers leave these out, or set them to what only they understand: then they say nothing.
        let number =
            |name| Ok::<_, WorkerError>(text(name)?.and_then(|value| value.trim().parse::<u32>().ok()));
        // The place on the host: LOCAL_RANK is 0 for each rank that sees its own GPU alone.
        let on_host = number("HVTUI_LOCAL_RANK")?.or(number("LOCAL_RANK")?);
        let local = on_host.zip(number("LOCAL_WORLD_SIZE")?).filter(|(place, count)| place < count);
        let transport = match text("HVTUI_TRANSPORT")?.as_deref() {
            None | Some("" | "auto") => TransportPreference::Auto,
            Some("tcp") => TransportPreference::Tcp,
            Some(other) => return Err(wrong("HVTUI_TRANSPORT", other, "auto or tcp")),
        };
        let streams = text("HVTUI_STREAMS")?
            .map(|value| {
                let must_be = "1 to 16 connections";
                let number = parse::<u32>("HVTUI_STREAMS", &value, must_be)?;
                if (1..=16).contains(&number) {
                    Ok(number)
                } else {
                    Err(wrong("HVTUI_STREAMS", &value, must_be))
                }
            })
            .transpose()?;
        let group = GroupConfig {
            rank,
            world,
            master: needed("MASTER_ADDR")?,
            port: parse("MASTER_PORT", &needed("MASTER_PORT")?, "a port, 1 to 65535")?,
            bind,
            secret: Secret::from_hex(&secret)
                .map_err(|error| wrong("HVTUI_SECRET", "…", &error.to_string()))?,
            timeout,
            clock: clock::host_now,
            ticker: clock::ticker(),
            transport,
            shm_domain: text("HVTUI_ISLAND")?.unwrap_or_default(),
            streams,
            pin: false,
            local,
        };
        if group.port == 0 {
            return Err(wrong("MASTER_PORT", "0", "a port, 1 to 65535"));
        }
        Ok(Self { rank, world, place, report, group: Some(group) })
    }
}

fn missing(missing: &'static str, present: &'static str) -> WorkerError {
    WorkerError::Missing { missing, present }
}

fn wrong(name: &'static str, value: &str, must_be: &str) -> WorkerError {
    WorkerError::Variable { name, value: value.to_owned(), must_be: must_be.to_owned() }
}

fn parse<T: FromStr>(name: &'static str, value: &str, must_be: &str) -> Result<T, WorkerError> {
    value.trim().parse().map_err(|_| wrong(name, value, must_be))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const FULL: [(&str, &str); 6] = [
        ("RANK", "1"),
        ("WORLD_SIZE", "3"),
        ("MASTER_ADDR", "gpu-a"),
        ("MASTER_PORT", "29500"),
        ("HVTUI_SECRET", SECRET),
        ("HVTUI_BIND", "10.0.0.2"),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<RankEnv, WorkerError> {
        RankEnv::from_lookup(&|name| {
            variables.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn nothing_is_a_single_rank_and_everything_is_a_group() {
        let alone = read(&[("HVTUI_REPORT", "/r")]).unwrap();
        assert_eq!((alone.rank, alone.world, alone.group.is_none()), (0, 1, true));
        assert_eq!(alone.report.unwrap().to_str(), Some("/r"));
        let one = read(&FULL).unwrap();
        let group = one.group.unwrap();
        assert_eq!((group.rank, group.world, group.port, group.timeout.as_secs()), (1, 3, 29500, 60));
        assert_eq!(group.bind.unwrap().to_string(), "10.0.0.2");
        assert!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap().group.is_none());
    }

    #[test]
    fn what_is_absent_or_wrong_is_named() {
        for (at, (name, _)) in FULL.iter().enumerate().take(5) {
            let mut some = FULL.to_vec();
            some.remove(at);
            let error = read(&some).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
        for (name, value) in [
            ("RANK", "3"),
            ("RANK", "-1"),
            ("WORLD_SIZE", "two"),
            ("WORLD_SIZE", "0"),
            ("MASTER_PORT", "0"),
            ("MASTER_PORT", "99999"),
            ("HVTUI_BIND", "0.0.0.0"),
            ("HVTUI_BIND", "eth0"),
            ("HVTUI_TRANSPORT", "ib"),
            ("HVTUI_TIMEOUT_S", "0"),
            ("HVTUI_TIMEOUT_S", "1m"),
            ("HVTUI_STREAMS", "0"),
            ("HVTUI_STREAMS", "17"),
            ("HVTUI_STREAMS", "many"),
        ] {
            let mut bad = FULL.to_vec();
            bad.push((name, value));
            let error = read(&bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}={value}")), "{error}");
        }
        let mut bad = FULL.to_vec();
        bad.push(("HVTUI_SECRET", "hunter2"));
        let error = read(&bad).unwrap_err().to_string();
        assert!(error.contains("HVTUI_SECRET=…") && !error.contains("hunter2"), "{error}");
    }
}
