//! On which providers ONNX Runtime runs the nodes of a session.
//!
//! Its option `session.disable_cpu_ep_fallback` would refuse every graph of open sizes: what sizes are computed from is in
//! the processor's memory, and so ONNX Runtime computes them there. So nodes may run there, and are listed.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::ptr;

use ort::AsPointer;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::sys::{OrtApi, OrtEpAssignedNode, OrtEpAssignedSubgraph, OrtStatusPtr};

/// Has a session record where its nodes run.
pub(super) fn recorded(builder: SessionBuilder) -> Result<SessionBuilder, ort::Error> {
    Ok(builder.with_config_entry("session.record_ep_graph_assignment_info", "1")?)
}

/// The operators that run on another provider than `provider`, with how many of each, e.g.
/// `3 Shape on CPUExecutionProvider`. The session has [`recorded`] them.
pub(super) fn elsewhere(session: &Session, provider: &str) -> Result<Vec<String>, String> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (on, operator) in nodes(session)?.into_iter().filter(|(on, _)| on != provider) {
        *counts.entry((on, operator)).or_default() += 1;
    }
    Ok(counts.into_iter().map(|((on, operator), count)| format!("{count} {operator} on {on}")).collect())
}

/// The provider and the operator of each node.
fn nodes(session: &Session) -> Result<Vec<(String, String)>, String> {
    let api = ort::api();
    let mut nodes = Vec::new();
    let (mut graphs, mut count) = (ptr::null::<*const OrtEpAssignedSubgraph>(), 0);
    // SAFETY: the session is alive, and so is all that it hands out below while this function runs; the API was asked for
    // in a version that has these functions.
    unsafe {
        check(api, (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &raw mut graphs, &raw mut count))?;
        for &graph in slice(graphs, count) {
            let provider = text(api, |out| (api.EpAssignedSubgraph_GetEpName)(graph, out))?;
            let (mut members, mut count) = (ptr::null::<*const OrtEpAssignedNode>(), 0);
            check(api, (api.EpAssignedSubgraph_GetNodes)(graph, &raw mut members, &raw mut count))?;
            for &node in slice(members, count) {
                let operator = text(api, |out| (api.EpAssignedNode_GetOperatorType)(node, out))?;
                nodes.push((provider.clone(), operator));
            }
        }
    }
    Ok(nodes)
}

/// # Safety
/// The pointer is null or points to so many elements, which outlive the slice.
unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    // SAFETY: as the caller promises.
    if start.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } }
}

/// A text that the API hands out.
///
/// # Safety
/// `get` sets its argument to a string that ends in zero, or fails.
unsafe fn text(api: &OrtApi, get: impl FnOnce(*mut *const c_char) -> OrtStatusPtr) -> Result<String, String> {
    let mut text = ptr::null();
    check(api, get(&raw mut text))?;
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// What a call of the API came to.
fn check(api: &OrtApi, status: OrtStatusPtr) -> Result<(), String> {
    let status = status.0;
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is one of an error, which is ours to release; its message lives as
    // long.
    unsafe {
        let message = CStr::from_ptr((api.GetErrorMessage)(status)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status);
        Err(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::Search;
    use crate::ort::LIBRARY;
    use crate::ort::library;

    #[test]
    fn nodes_on_another_provider_are_counted() {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/residual.onnx");
        let session = |builder: SessionBuilder| builder.clone().commit_from_file(file).unwrap();
        let builder = Session::builder(&loaded.environment).unwrap();
        let plain = session(builder.clone());
        assert!(elsewhere(&plain, "CPUExecutionProvider").unwrap_err().contains("record_ep_graph_assignment_info"));
        let recorded = session(recorded(builder).unwrap());
        assert_eq!(elsewhere(&recorded, "CPUExecutionProvider").unwrap(), Vec::<String>::new());
        let listed = elsewhere(&recorded, "CUDAExecutionProvider").unwrap();
        assert!(listed.iter().any(|line| line.ends_with(" on CPUExecutionProvider")), "{listed:?}");
    }
}
