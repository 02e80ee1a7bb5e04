//! Where a model runs, as people write it: `cpu`, `cuda`, `cuda:1`, `metal`.

use crate::load::LoadError;
use std::fmt;
use std::str::FromStr;

/// The device of a model's weights, caches and passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The processors of this machine.
    #[default]
    Cpu,
    /// An NVIDIA GPU by its number; needs a build with the feature `cuda`.
    Cuda(usize),
    /// An Apple GPU by its number; needs a build with the feature `metal`.
    Metal(usize),
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device is {0:?}; it must be cpu, cuda, cuda:N, metal or metal:N")]
pub struct DeviceError(String);

impl Device {
    /// Bytes free in the device's own memory; none where it has none, or does not say.
    #[must_use]
    pub fn free_memory(self) -> Option<u64> {
        match self {
            Self::Cpu | Self::Metal(_) => None,
            Self::Cuda(number) => free_cuda_memory(number),
        }
    }

    /// Opens the device for tensors.
    pub(crate) fn open(self) -> Result<candle_core::Device, LoadError> {
        let opened = match self {
            Self::Cpu => return Ok(candle_core::Device::Cpu),
            Self::Cuda(_) if !cfg!(feature = "cuda") => return Err(self.not_built("cuda")),
            Self::Metal(_) if !cfg!(feature = "metal") => return Err(self.not_built("metal")),
            Self::Cuda(number) => candle_core::Device::new_cuda(number),
            Self::Metal(number) => candle_core::Device::new_metal(number),
        };
        opened.map_err(|error| self.refused(format!("cannot be opened: {error}")))
    }

    fn not_built(self, feature: &str) -> LoadError {
        self.refused(format!(
            "needs a build with the feature {feature}, which this one lacks: cargo build --release --features {feature}"
        ))
    }

    /// An error that names the device.
    pub(crate) fn refused(self, problem: String) -> LoadError {
        LoadError::Device { device: self.to_string(), problem }
    }
}

#[cfg(feature = "cuda")]
fn free_cuda_memory(number: usize) -> Option<u64> {
    use candle_core::backend::BackendDevice;
    let device = candle_core::CudaDevice::new(number).ok()?;
    let (free, _total) = device.cuda_stream().context().mem_get_info().ok()?;
    Some(free as u64)
}

#[cfg(not(feature = "cuda"))]
fn free_cuda_memory(_number: usize) -> Option<u64> {
    None
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Metal(number) => write!(f, "metal:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, number.parse().ok()),
            None => (text, Some(0)),
        };
        match (kind, number) {
            ("cpu", Some(0)) if kind == text => Ok(Self::Cpu),
            ("cuda", Some(number)) => Ok(Self::Cuda(number)),
            ("metal", Some(number)) => Ok(Self::Metal(number)),
            _ => Err(DeviceError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_written() {
        for (text, device, written) in [
            ("cpu", Device::Cpu, "cpu"),
            ("cuda", Device::Cuda(0), "cuda:0"),
            ("cuda:3", Device::Cuda(3), "cuda:3"),
            ("metal", Device::Metal(0), "metal:0"),
        ] {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), written);
        }
        for text in ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:0:1", "CUDA"] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("cuda:N"), "{error}");
        }
    }

    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    #[test]
    fn a_build_without_the_feature_says_so() {
        for (device, feature) in
            [(Device::Cuda(1), "--features cuda"), (Device::Metal(0), "--features metal")]
        {
            let error = device.open().unwrap_err().to_string();
            assert!(error.contains(feature) && error.contains(&device.to_string()), "{error}");
        }
    }
}
