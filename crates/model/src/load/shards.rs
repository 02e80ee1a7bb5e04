//! `safetensors` weights: one file, or several with an index that says which tensor is in which.

use super::LoadError;
use super::hf::{parse, read};
use super::kinds::Layout;
use super::raw::{Entry, WeightsFile};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest header believed: that of a model of 100,000 tensors is a tenth of it.
const MAX_HEADER: u64 = 100 << 20;
/// Bytes of the header's length, in front of it.
const LENGTH_BYTES: usize = 8;

/// The weights files of a model.
#[derive(Debug)]
pub(super) struct Shards {
    /// In the order of their names, which is the order they are hashed in.
    pub(super) files: Vec<PathBuf>,
    /// Where the files came from, and the file of each tensor, if there are several.
    index: Option<(PathBuf, BTreeMap<String, String>)>,
}

impl Shards {
    /// One file.
    pub(super) fn single(path: PathBuf) -> Self {
        Self { files: vec![path], index: None }
    }

    /// The weights of a folder.
    pub(super) fn of_folder(folder: &Path) -> Result<Self, LoadError> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let single = folder.join("model.safetensors");
        let path = folder.join("model.safetensors.index.json");
        if single.exists() || !path.exists() {
            return Ok(Self::single(single));
        }
        let map = parse::<Index>(&path, &read(&path)?)?.weight_map;
        let names: BTreeSet<&String> = map.values().collect();
        if names.is_empty() {
            return Err(LoadError::format(&path, "its weight_map is empty"));
        }
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            // An index must not reach outside its folder.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                let problem = format!("its weight_map names {name:?}, which is no file name");
                return Err(LoadError::format(&path, problem));
            }
            let file = folder.join(name);
            if !file.exists() {
                let problem = format!("its shard {name} is not in the folder; fetch it again");
                return Err(LoadError::format(&path, problem));
            }
            files.push(file);
        }
        Ok(Self { files, index: Some((path, map)) })
    }

    /// Opens the files and merges their tensor tables.
    pub(super) fn open(&self) -> Result<(Vec<WeightsFile>, BTreeMap<String, Entry>), LoadError> {
        let mut files: Vec<WeightsFile> = Vec::new();
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for (index, path) in self.files.iter().enumerate() {
            let mut file = File::open(path).map_err(LoadError::io(path))?;
            let size = file.metadata().map_err(LoadError::io(path))?.len();
            let header = header(path, &mut file, size)?;
            let data_start = (LENGTH_BYTES + header.len()) as u64;
            let Header { tensors, .. } = parse(path, &header)?;
            for (name, info) in tensors {
                check_extent(&name, &info)?;
                let layout = match info.dtype {
                    Dtype::F32 => Ok(Layout::F32),
                    Dtype::F16 => Ok(Layout::F16),
                    Dtype::BF16 => Ok(Layout::Bf16),
                    other => Err(format!("{other:?}")),
                };
                let start = data_start.saturating_add(info.data_offsets.0 as u64);
                let entry = Entry { dims: info.shape, layout, file: index, start };
                if let Some(other) = entries.get(&name) {
                    let other = self.files[other.file].display();
                    return Err(LoadError::format(path, format!("tensor {name} is in {other} too")));
                }
                entries.insert(name, entry);
            }
            files.push(WeightsFile { file, size });
        }
        self.check(&entries)?;
        Ok((files, entries))
    }

    /// Refuses shards that do not hold what the index says.
    fn check(&self, entries: &BTreeMap<String, Entry>) -> Result<(), LoadError> {
        let Some((index, map)) = &self.index else { return Ok(()) };
        for (tensor, file) in map {
            let held = entries.get(tensor).and_then(|entry| self.files[entry.file].file_name());
            let problem = match held {
                Some(held) if held == file.as_str() => continue,
                Some(held) => format!("it has tensor {tensor} in {file}, but {} holds it", held.display()),
                None => format!("it has tensor {tensor} in {file}, which does not hold it"),
            };
            return Err(LoadError::format(index, problem));
        }
        Ok(())
    }
}

/// A header, read without the `safetensors` crate's own checks: those want the whole file in memory,
/// and do not name the tensor.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _notes: Option<IgnoredAny>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// The header's JSON; nothing of the data.
fn header(path: &Path, file: &mut File, size: u64) -> Result<Vec<u8>, LoadError> {
    let mut length = [0; LENGTH_BYTES];
    let Some(left) = size.checked_sub(LENGTH_BYTES as u64) else {
        return Err(LoadError::format(path, format!("it is only {size} bytes long")));
    };
    file.read_exact(&mut length).map_err(LoadError::io(path))?;
    let declared = u64::from_le_bytes(length);
    if declared > left || declared > MAX_HEADER {
        let problem = format!("its header should be {declared} bytes long, and {left} bytes are left");
        return Err(LoadError::format(path, problem));
    }
    let mut header = Vec::new();
    file.take(declared).read_to_end(&mut header).map_err(LoadError::io(path))?;
    Ok(header)
}

/// Refuses a tensor whose place in the file is not as long as its shape needs.
fn check_extent(name: &str, info: &TensorInfo) -> Result<(), LoadError> {
    let (start, end) = info.data_offsets;
    let values = info.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bits = values.and_then(|n| n.checked_mul(info.dtype.bitsize()));
    if bits.map(|bits| bits / 8) == end.checked_sub(start) {
        return Ok(());
    }
    let problem =
        format!("has the shape {:?} and lies at bytes {start} to {end}, which do not fit", info.shape);
    Err(LoadError::tensor(name, problem))
}
