//! Tensors by name in the bytes of one or several files: what both formats have in common.
//!
//! Each format brings the table (name → type, shape, place) and its names for the parts of a
//! model; shape checks, bounds, reading, and the refusal of tensors nobody took are here.

use super::kinds::Layout;
use super::{LoadError, LoadStage, LoadStep};
use crate::compute::matrix::{Matrix, Store, super_blocks};
use crate::weights::{Part, TensorSource};
use foretoken_kernels::Packed;
use half::{bf16, f16};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Unknown tensors listed in an error.
const LISTED: usize = 3;

/// Where a tensor is and how it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Outermost dimension first.
    pub(super) dims: Vec<usize>,
    /// Its storage, or the name of one there is no kernel for.
    pub(super) layout: Result<Layout, String>,
    /// Index of its file.
    pub(super) file: usize,
    /// First byte in the file.
    pub(super) start: u64,
}

/// A weights file and its size.
#[derive(Debug)]
pub(super) struct WeightsFile {
    pub(super) file: File,
    pub(super) size: u64,
}

/// The tensors of a model on disk.
#[derive(Debug)]
pub(super) struct RawTensors {
    files: Vec<WeightsFile>,
    entries: BTreeMap<String, Entry>,
    taken: BTreeSet<String>,
    name_of: fn(Part) -> String,
    /// Added to the weights of norms.
    norm_offset: f32,
    bytes_read: u64,
}

impl RawTensors {
    /// Tensors in `files`, with the format's name for each part of a model.
    pub(super) fn new(
        files: Vec<WeightsFile>,
        entries: BTreeMap<String, Entry>,
        name_of: fn(Part) -> String,
    ) -> Self {
        Self { files, entries, taken: BTreeSet::new(), name_of, norm_offset: 0.0, bytes_read: 0 }
    }

    /// The same, for files that hold the weights of norms less `offset`.
    pub(super) fn with_norm_offset(self, offset: f32) -> Self {
        Self { norm_offset: offset, ..self }
    }

    /// Whether the model has the part.
    pub(super) fn has(&self, part: Part) -> bool {
        self.entries.contains_key(&(self.name_of)(part))
    }

    /// Leaves a tensor out on purpose.
    pub(super) fn ignore(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// Reads a vector by its name in the file, whatever its length; `None` if there is none.
    pub(super) fn named_vector(&mut self, name: &str) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let len = entry.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
        self.read_vector(name, len).map(Some)
    }

    fn read_vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let store = self.read(name, &[len])?;
        let unusable = |problem: String| LoadError::tensor(name, problem);
        let matrix = Matrix::new(1, len, store).map_err(unusable)?;
        let mut scratch = Vec::new();
        let values = matrix.widen(0..1, &mut scratch).map_err(|e| unusable(e.to_string()))?;
        Ok(values.to_vec())
    }

    /// Reads a tensor of exactly this shape.
    fn read(&mut self, name: &str, dims: &[usize]) -> Result<Store, LoadError> {
        let (layout, raw) = self.read_bytes(name, dims)?;
        Ok(store(layout, raw))
    }

    /// Reads the bytes of a tensor of exactly this shape.
    fn read_bytes(&mut self, name: &str, dims: &[usize]) -> Result<(Layout, Vec<u8>), LoadError> {
        let Some(entry) = self.entries.get(name) else {
            return Err(LoadError::MissingTensor(name.to_owned()));
        };
        let unusable = |problem: String| LoadError::tensor(name, problem);
        if entry.dims != dims {
            return Err(unusable(format!("has the shape {:?} where {dims:?} is needed", entry.dims)));
        }
        let layout = entry.layout.clone().map_err(|kind| {
            unusable(format!(
                "is stored as {kind}, which is not supported; use F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K"
            ))
        })?;
        let (values, bytes) = layout.block();
        let row = dims.last().copied().unwrap_or(1);
        if !row.is_multiple_of(values) {
            return Err(unusable(format!("has rows of {row} values, which are no whole blocks of {values}")));
        }
        let file = &mut self.files[entry.file];
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let size = count.and_then(|n| (n / values).checked_mul(bytes));
        let end = size.and_then(|size| entry.start.checked_add(size as u64)).filter(|&end| end <= file.size);
        let (Some(size), Some(_)) = (size, end) else {
            return Err(unusable(format!(
                "starts at byte {} and does not fit into the file's {} bytes; the file is cut short, fetch it again",
                entry.start, file.size
            )));
        };
        let mut raw = vec![0; size];
        let read = file.file.seek(SeekFrom::Start(entry.start)).and_then(|_| file.file.read_exact(&mut raw));
        read.map_err(|error| unusable(format!("cannot be read: {error}")))?;
        self.bytes_read += size as u64;
        self.taken.insert(name.to_owned());
        Ok((layout, raw))
    }

    fn refuse_the_rest(&self) -> Result<(), LoadError> {
        let rest: Vec<&str> =
            self.entries.keys().filter(|name| !self.taken.contains(*name)).map(String::as_str).collect();
        if rest.is_empty() {
            return Ok(());
        }
        let listed = rest[..rest.len().min(LISTED)].join(", ");
        Err(LoadError::Unsupported(format!(
            "{} tensors that a model of this family does not have, such as {listed}",
            rest.len()
        )))
    }
}

impl RawTensors {
    /// Tokens the embedding has rows for.
    pub(super) fn embedding_rows(&self) -> Result<usize, LoadError> {
        self.rows(Part::Embedding)
    }

    /// Whether the fused engine has a kernel for every tensor.
    pub(super) fn all_have_kernels(&self) -> bool {
        self.entries.values().all(|entry| entry.layout.as_ref().is_ok_and(|layout| layout.format().is_some()))
    }

    /// Takes the whole model with `take`, and refuses the file if it holds more than that.
    pub(super) fn take_all<W>(
        &mut self,
        take: impl FnOnce(&mut dyn TensorSource) -> Result<W, LoadError>,
        progress: &mut dyn FnMut(LoadStage),
    ) -> Result<W, LoadError> {
        let total = self.files.iter().map(|file| file.size).sum();
        let mut reporting = Reporting { tensors: self, total, progress };
        let weights = take(&mut reporting)?;
        self.refuse_the_rest()?;
        progress(LoadStage { step: LoadStep::Weights, done: total, total });
        Ok(weights)
    }

    fn rows(&self, part: Part) -> Result<usize, LoadError> {
        let name = (self.name_of)(part);
        match self.entries.get(&name) {
            Some(entry) => Ok(entry.dims.first().copied().unwrap_or(0)),
            None => Err(LoadError::MissingTensor(name)),
        }
    }
}

/// A source that tells how far it is behind every tensor.
struct Reporting<'a> {
    tensors: &'a mut RawTensors,
    total: u64,
    progress: &'a mut dyn FnMut(LoadStage),
}

impl Reporting<'_> {
    fn report(&mut self) {
        let done = self.tensors.bytes_read;
        (self.progress)(LoadStage { step: LoadStep::Weights, done, total: self.total });
    }
}

impl TensorSource for Reporting<'_> {
    fn rows(&self, part: Part) -> Result<usize, LoadError> {
        self.tensors.rows(part)
    }

    fn matrix(&mut self, part: Part, rows: usize, cols: usize) -> Result<Matrix, LoadError> {
        let name = (self.tensors.name_of)(part);
        let store = self.tensors.read(&name, &[rows, cols])?;
        self.report();
        Matrix::new(rows, cols, store).map_err(|problem| LoadError::tensor(name, problem))
    }

    fn packed(
        &mut self,
        part: Part,
        rows: usize,
        cols: usize,
        order: &dyn Fn(usize) -> usize,
    ) -> Result<Packed, LoadError> {
        let name = (self.tensors.name_of)(part);
        let (layout, raw) = self.tensors.read_bytes(&name, &[rows, cols])?;
        self.report();
        let Some(format) = layout.format() else {
            let problem = format!("is stored as {layout:?}, which only the reference and graph engines have");
            return Err(LoadError::tensor(name, problem));
        };
        Packed::reordered(format, rows, cols, &raw, order)
            .map_err(|error| LoadError::tensor(name, error.to_string()))
    }

    fn vector(&mut self, part: Part, len: usize) -> Result<Vec<f32>, LoadError> {
        let name = (self.tensors.name_of)(part);
        let mut vector = self.tensors.read_vector(&name, len)?;
        if part.is_norm() {
            let offset = self.tensors.norm_offset;
            vector.iter_mut().for_each(|v| *v += offset);
        }
        self.report();
        Ok(vector)
    }
}

/// File bytes, all of them little-endian, as the numbers they are.
pub(super) fn store(layout: Layout, raw: Vec<u8>) -> Store {
    match layout {
        Layout::F32 => Store::F32(raw.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
        Layout::F16 => Store::F16(raw.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b)).collect()),
        Layout::Bf16 => Store::Bf16(raw.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b)).collect()),
        Layout::Blocks(kind) => Store::Blocks(kind, raw),
        Layout::Super(dtype) => Store::Super(super_blocks(dtype, &raw)),
    }
}
