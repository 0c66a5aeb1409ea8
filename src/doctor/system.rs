//! Which family of Linux distributions a host is of, and by which command it installs a package under the name that it has there.
//! Only [`System::here`] looks; the commands are pure.

use serde::{Deserialize, Serialize};

use super::shell_word;

/// Where a distribution says what it is: the first that is there counts.
const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// A family of distributions, by what installs packages there and how those are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum System {
    Debian,
    Ubuntu,
    Fedora,
    RedHat,
    Suse,
    Arch,
    /// None of them, or not told.
    #[default]
    Other,
}

/// A compiler of another version than the system's own.
pub(super) struct Gcc {
    /// How it is had.
    pub(super) install: String,
    /// The program for C.
    pub(super) cc: String,
    /// The program for C++.
    pub(super) cxx: String,
}

impl System {
    /// That of this host.
    pub(super) fn here() -> Self {
        let told = FILES.iter().find_map(|file| std::fs::read_to_string(file).ok());
        told.map_or(Self::Other, |text| Self::of(&text))
    }

    /// By its own name, else by the first of those that it is like.
    fn of(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_default().trim_matches(['"', '\''])
        };
        let mut names = value("ID").split_whitespace().chain(value("ID_LIKE").split_whitespace());
        names.find_map(Self::named).unwrap_or_default()
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "debian" | "raspbian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            "fedora" => Some(Self::Fedora),
            "rhel" | "centos" | "rocky" | "almalinux" | "ol" => Some(Self::RedHat),
            "suse" | "opensuse" | "sles" => Some(Self::Suse),
            "arch" => Some(Self::Arch),
            _ => None,
        }
    }

    fn install(self, package: &str) -> Option<String> {
        let by = match self {
            Self::Debian | Self::Ubuntu => "apt-get install",
            Self::Fedora | Self::RedHat => "dnf install",
            Self::Suse => "zypper install",
            Self::Arch => "pacman -S",
            Self::Other => return None,
        };
        Some(format!("sudo {by} {}", shell_word(package)))
    }

    /// The command that installs the headers of this kernel, named as `uname -r` names it.
    pub(super) fn headers(self, kernel: &str) -> Option<String> {
        let kind = kernel.rsplit('-').next().unwrap_or_default();
        let package = match (self, kernel.split_once('+')) {
            (Self::Fedora | Self::RedHat, Some((release, kind))) => format!("kernel-{kind}-devel-{release}"),
            (Self::Fedora | Self::RedHat, None) => format!("kernel-devel-{kernel}"),
            (Self::Suse, _) => format!("kernel-{kind}-devel"),
            // of linux-lts `6.6.30-1-lts`, of linux `6.9.1-arch1-1`
            (Self::Arch, _) if kind.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                format!("linux-{kind}-headers")
            }
            (Self::Arch, _) => "linux-headers".to_owned(),
            (Self::Debian | Self::Ubuntu | Self::Other, _) => format!("linux-headers-{kernel}"),
        };
        self.install(&package)
    }

    /// What gives it a GCC of this major version beside its own.
    pub(super) fn gcc(self, major: u32) -> Gcc {
        let package = match self {
            Self::Debian | Self::Ubuntu => Some(format!("g++-{major}")),
            Self::RedHat => Some(format!("gcc-toolset-{major}-gcc-c++")),
            Self::Suse => Some(format!("gcc{major}-c++")),
            Self::Arch => Some(format!("gcc{major}")),
            // Fedora has but a few of them
            Self::Fedora | Self::Other => None,
        };
        let install = package.and_then(|package| self.install(&package));
        let install = install.unwrap_or_else(|| format!("install gcc and g++ of version {major} there"));
        if self == Self::RedHat {
            let at = |name: &str| format!("/opt/rh/gcc-toolset-{major}/root/usr/bin/{name}");
            return Gcc { install, cc: at("gcc"), cxx: at("g++") };
        }
        Gcc { install, cc: format!("gcc-{major}"), cxx: format!("g++-{major}") }
    }

    /// The command that installs the driver's library for CUDA, beside a driver of this version where that is known.
    pub(super) fn cuda_library(self, driver: Option<&str>) -> Option<String> {
        let branch = driver.and_then(|driver| driver.split('.').next());
        match self {
            Self::Debian => self.install("libcuda1"),
            Self::Ubuntu => self.install(&format!("libnvidia-compute-{}", branch?)),
            Self::Fedora | Self::RedHat => self.install("nvidia-driver-cuda-libs"),
            Self::Suse => self.install("nvidia-compute-G06"),
            Self::Arch => self.install("nvidia-utils"),
            Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_its_name_or_by_what_it_is_like() {
        let of = System::of;
        assert_eq!(of("PRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION_ID=\"12\"\nID=debian\n"), System::Debian);
        assert_eq!(of("ID_LIKE=debian\nNAME=\"Ubuntu\"\nID=ubuntu\n"), System::Ubuntu);
        assert_eq!(of("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), System::Ubuntu);
        assert_eq!(of("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), System::RedHat);
        assert_eq!(of("ID=\"amzn\"\nID_LIKE=\"fedora\"\n"), System::Fedora);
        assert_eq!(of("ID='opensuse-leap'\nID_LIKE='suse opensuse'\n"), System::Suse);
        assert_eq!(of("ID=manjaro\nID_LIKE=arch\n"), System::Arch);
        assert_eq!([of("ID=nixos\n"), of("")], [System::Other; 2]);
        assert_eq!(serde_json::to_value(System::RedHat).unwrap(), "red_hat");
    }

    #[test]
    fn each_family_has_its_own_names_of_packages() {
        let headers = |system: System, kernel: &str| system.headers(kernel).unwrap_or_default();
        assert_eq!(
            headers(System::Ubuntu, "6.8.0-45-generic"),
            "sudo apt-get install linux-headers-6.8.0-45-generic"
        );
        assert_eq!(
            headers(System::RedHat, "5.14.0-427.el9.x86_64"),
            "sudo dnf install kernel-devel-5.14.0-427.el9.x86_64"
        );
        assert_eq!(
            headers(System::RedHat, "5.14.0-427.el9.x86_64+rt"),
            "sudo dnf install kernel-rt-devel-5.14.0-427.el9.x86_64"
        );
        assert_eq!(
            headers(System::Suse, "6.4.0-150600.23.7-default"),
            "sudo zypper install kernel-default-devel"
        );
        assert_eq!(headers(System::Arch, "6.9.1-arch1-1"), "sudo pacman -S linux-headers");
        assert_eq!(headers(System::Arch, "6.6.30-1-lts"), "sudo pacman -S linux-lts-headers");
        assert_eq!(System::Other.headers("6.6.0"), None);
        assert_eq!(headers(System::Debian, "6.1; ls"), "sudo apt-get install 'linux-headers-6.1; ls'");

        let gcc = |system: System| system.gcc(12);
        assert_eq!(gcc(System::Debian).install, "sudo apt-get install g++-12");
        assert_eq!(gcc(System::RedHat).cxx, "/opt/rh/gcc-toolset-12/root/usr/bin/g++");
        assert_eq!(
            (gcc(System::Suse).install, gcc(System::Suse).cc),
            ("sudo zypper install gcc12-c++".to_owned(), "gcc-12".to_owned())
        );
        assert_eq!(gcc(System::Other).install, "install gcc and g++ of version 12 there");

        let library = |system: System| system.cuda_library(Some("550.54.14"));
        assert_eq!(library(System::Debian).as_deref(), Some("sudo apt-get install libcuda1"));
        assert_eq!(library(System::Ubuntu).as_deref(), Some("sudo apt-get install libnvidia-compute-550"));
        assert_eq!((library(System::Other), System::Ubuntu.cuda_library(None)), (None, None));
    }
}
