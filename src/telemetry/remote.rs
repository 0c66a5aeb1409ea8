//! A host without an agent, told by its own tools: sections of text become facts and samples.
//!
//! A section is the byte 1, a name, a line feed and what a command printed; the section `rc` behind it is the command's
//! exit status; `end` closes one reading. Knows neither who runs the commands nor how the text comes.

use std::collections::BTreeMap;

use super::addresses::parse_ssh_connection;
use super::host::{HostMeter, Texts};
use super::procfs;
use super::smi;
use crate::domain::gpu::Reading;
use crate::domain::host::{HostInfo, HostSample, InterfaceAddress};
use crate::domain::time::HostTime;

/// One reading is a few kilobytes; a host that sends so much without an end sends something else.
const MOST_BYTES: usize = 1 << 20;
const END: &[u8] = b"\x01end\n";

/// More text than one reading can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("more than {MOST_BYTES} bytes came without the end of a reading")]
pub struct TooMuch;

/// Takes in the text of one host.
#[derive(Debug, Default)]
pub struct RemoteReader {
    rest: Vec<u8>,
    /// The newest text of each section and its command's exit status.
    sections: BTreeMap<String, (String, Option<i32>)>,
    meter: Option<HostMeter>,
}

impl RemoteReader {
    /// Takes in bytes that came at `now`, a clock of the reader's; gives what whole readings told. The first reading
    /// has no rates (CPU, network): they are differences.
    pub fn push(&mut self, bytes: &[u8], now: HostTime) -> Result<Vec<(HostInfo, HostSample)>, TooMuch> {
        self.rest.extend_from_slice(bytes);
        let mut told = Vec::new();
        while let Some(at) = self.rest.windows(END.len()).position(|window| window == END) {
            let reading: Vec<u8> = self.rest.drain(..at + END.len()).collect();
            self.take(&String::from_utf8_lossy(&reading));
            told.push(self.tell(now));
        }
        if self.rest.len() > MOST_BYTES { Err(TooMuch) } else { Ok(told) }
    }

    fn take(&mut self, reading: &str) {
        let mut last: Option<String> = None;
        for section in reading.split('\u{1}') {
            let Some((name, text)) = section.split_once('\n') else { continue };
            match (name, &last) {
                ("rc", Some(command)) => {
                    if let Some((_, status)) = self.sections.get_mut(command) {
                        *status = text.trim().parse().ok();
                    }
                }
                // A name is one of ours: the text of a command may hold anything.
                (name, _) if name.len() <= 16 && self.sections.len() < 64 => {
                    self.sections.insert(name.to_owned(), (text.to_owned(), None));
                    last = Some(name.to_owned());
                }
                _ => {}
            }
        }
    }

    fn text(&self, name: &str) -> &str {
        self.sections.get(name).map_or("", |(text, _)| text)
    }

    fn word(&self, name: &str) -> String {
        self.text(name).lines().next().unwrap_or_default().trim().chars().take(256).collect()
    }

    fn tell(&mut self, now: HostTime) -> (HostInfo, HostSample) {
        let status = |name: &str| self.sections.get(name).and_then(|(_, status)| *status);
        let mut gpus = smi::gpus(self.text("gpus"), status("gpus"));
        if let Ok(gpus) = &mut gpus {
            smi::add_processes(gpus, self.text("apps"), status("apps"));
        }
        let (infos, samples, driver, absence) = match gpus {
            Ok(gpus) => (gpus.infos, gpus.samples, gpus.driver, None),
            Err(absence) => (Vec::new(), Vec::new(), Reading::Unsupported, Some(absence)),
        };
        let memory = procfs::parse_meminfo(self.text("meminfo"));
        let (ssh_client_address, ssh_server_address) = parse_ssh_connection(self.text("ssh"));
        let addresses = ssh_server_address.into_iter();
        let info = HostInfo {
            hostname: self.word("hostname"),
            kernel: self.word("kernel"),
            arch: self.word("arch"),
            user: self.word("user"),
            cpus: self.word("cpus").parse().unwrap_or(1).clamp(1, 65_536),
            memory_total: match memory {
                Ok(memory) => Reading::Value(memory.total),
                Err(error) => Reading::failed(error.to_string()),
            },
            boot_id: self.word("boot"),
            agent_version: "none".to_owned(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: addresses
                .map(|address| InterfaceAddress { interface: "ssh".to_owned(), address })
                .collect(),
            ssh_server_address,
            ssh_client_address,
            gpus: infos,
            gpu_absence: absence,
            driver,
            cuda_driver: Reading::Unsupported,
            nccl: Reading::Unsupported,
            topology: None,
        };
        let meter = self.meter.take();
        let texts = Texts {
            stat: self.text("stat"),
            meminfo: self.text("meminfo"),
            loadavg: self.text("loadavg"),
            net_dev: self.text("net"),
        };
        // Without a reading before it, the difference is one with itself: no time has passed.
        let mut meter = meter.unwrap_or_else(|| HostMeter::start_of(now, &texts));
        let live = meter.sample_of(now, &texts);
        self.meter = Some(meter);
        let sample = HostSample {
            cpu_percent: live.cpu_percent,
            memory_used: live.memory_used,
            load: live.load,
            net_rx: live.net_rx,
            net_tx: live.net_tx,
            gpus: samples,
        };
        (info, sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::host::GpuAbsenceReason;

    const FACTS: &str = "\u{1}hostname\nold1\n\u{1}rc\n0\n\u{1}kernel\n5.4.0\n\u{1}rc\n0\n\u{1}arch\naarch64\n\u{1}rc\n0\n\
                         \u{1}user\nml\n\u{1}rc\n0\n\u{1}cpus\n64\n\u{1}rc\n0\n\u{1}boot\nb00t\n\u{1}rc\n0\n\
                         \u{1}ssh\n10.0.0.1 5 10.0.0.7 22\n\u{1}rc\n0\n";

    fn reading(ticks: u32, gpus: &str) -> String {
        format!(
            "\u{1}stat\ncpu  {ticks} 0 0 100 0 0 0 0 0 0\n\u{1}rc\n0\n\
             \u{1}meminfo\nMemTotal: 1000 kB\nMemAvailable: 400 kB\n\u{1}rc\n0\n\
             \u{1}loadavg\n0.5 1 2 1/2 3\n\u{1}rc\n0\n\u{1}net\nInter-| x\n face | y\n  eth0: {ticks} 0 0 0 0 0 0 0 0 0\n\u{1}rc\n0\n\
             {gpus}\u{1}end\n"
        )
    }

    fn one() -> String {
        let gpu = [("index", "0"), ("uuid", "GPU-aa"), ("utilization.gpu", "37"), ("name", "H200")];
        let gpu = smi::line_of(&gpu);
        format!("\u{1}gpus\n{gpu}\u{1}rc\n0\n\u{1}apps\nGPU-aa, 7, 1, python\n\u{1}rc\n0\n")
    }

    #[test]
    fn readings_become_facts_and_samples_however_they_are_cut() {
        let text = format!("{FACTS}{}{}", reading(100, &one()), reading(150, &one()));
        for cut in [1, 7, 4096] {
            let mut reader = RemoteReader::default();
            let told: Vec<_> = text
                .as_bytes()
                .chunks(cut)
                .zip(0..)
                .flat_map(|(piece, at)| reader.push(piece, HostTime(at * 1_000_000)).unwrap())
                .collect();
            let [(info, first), (again, second)] = told.as_slice() else { panic!("{} told", told.len()) };
            assert_eq!((info.hostname.as_str(), info.cpus, info.gpus.len()), ("old1", 64, 1));
            assert_eq!(info.ssh_server_address, Some("10.0.0.7".parse().unwrap()));
            assert_eq!(info, again);
            assert!(first.cpu_percent.value().is_none(), "a first reading has no rate");
            assert_eq!(second.cpu_percent, Reading::Value(100.0));
            assert_eq!(second.memory_used, Reading::Value(600 * 1024));
            assert_eq!(second.gpus[0].util, Reading::Value(37));
            assert_eq!(second.gpus[0].processes.value().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_host_without_the_tool_is_still_told() {
        let mut reader = RemoteReader::default();
        let none = "\u{1}gpus\ntimeout: failed to run command 'nvidia-smi'\n\u{1}rc\n127\n";
        let text = format!("{FACTS}{}", reading(1, none));
        let told = reader.push(text.as_bytes(), HostTime(1)).unwrap();
        assert_eq!(told[0].0.gpu_absence.as_ref().unwrap().reason, GpuAbsenceReason::NoLibrary);
        assert_eq!(told[0].1.load, Reading::Value([0.5, 1.0, 2.0]));
        let told = reader.push(b"\x01gpus\n\x01end\n", HostTime(2)).unwrap();
        assert_eq!(told[0].0.gpu_absence.as_ref().unwrap().reason, GpuAbsenceReason::Other);
    }

    #[test]
    fn text_without_an_end_is_bounded() {
        let mut reader = RemoteReader::default();
        let many = vec![b'x'; MOST_BYTES];
        assert!(reader.push(&many, HostTime(0)).is_ok());
        assert_eq!(reader.push(b"xx", HostTime(0)), Err(TooMuch));
    }
}
