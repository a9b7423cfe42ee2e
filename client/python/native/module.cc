// gemmd._native: the hot path of armed plans for Python, over client/armed. It speaks the stable
// ABI, so one build serves every Python from 3.11 on.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/armed/slot.h"

namespace {

using gemmd::armed::Code;
using gemmd::armed::CudaStream;
using gemmd::armed::DeviceCopy;
using gemmd::armed::Outcome;
using gemmd::armed::Region;
using gemmd::armed::RegionParts;
using gemmd::armed::RunReport;
using gemmd::armed::Slot;

PyObject* make_error = nullptr;  // (code, message) -> exception; the package's own classes
PyTypeObject* region_type = nullptr;

struct RegionObject {
  PyObject_HEAD std::shared_ptr<Region> region;
};

struct SlotObject {
  PyObject_HEAD std::unique_ptr<Slot> slot;
};

PyObject* Raise(const Outcome& outcome) {
  PyObject* error = nullptr;
  if (make_error != nullptr) {
    error = PyObject_CallFunction(make_error, "is", static_cast<int>(outcome.code),
                                  outcome.message.c_str());
    if (error == nullptr) return nullptr;
  }
  PyObject* type =
      error == nullptr ? PyExc_RuntimeError : reinterpret_cast<PyObject*>(Py_TYPE(error));
  if (error == nullptr) {
    PyErr_SetString(type, outcome.message.c_str());
  } else {
    PyErr_SetObject(type, error);
    Py_DECREF(error);
  }
  return nullptr;
}

PyObject* NoneOr(const Outcome& outcome) {
  if (!outcome.ok()) return Raise(outcome);
  Py_RETURN_NONE;
}

// A number that a caller gives for a pointer or a size; -1 and an exception otherwise.
bool AsWords(PyObject* const* arguments, Py_ssize_t count, Py_ssize_t wanted, uint64_t* words) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%zd arguments, %zd are needed", count, wanted);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    words[i] = PyLong_AsUnsignedLongLong(arguments[i]);
    if (words[i] == static_cast<uint64_t>(-1) && PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

CudaStream StreamOf(uint64_t handle) { return reinterpret_cast<CudaStream>(handle); }

// Region(memory_fd, wake_fd, size_bytes, slots, layout_version, share_socket)

PyObject* NewRegion(PyTypeObject* type, PyObject* arguments, PyObject*) {
  RegionParts parts;
  const char* socket = nullptr;
  long long size_bytes = 0;
  if (!PyArg_ParseTuple(arguments, "iiLiis", &parts.memory_fd, &parts.wake_fd, &size_bytes,
                        &parts.slots, &parts.layout_version, &socket)) {
    return nullptr;
  }
  parts.size_bytes = size_bytes;
  parts.share_socket = socket;
  Outcome why;
  std::shared_ptr<Region> region = Region::Open(std::move(parts), why);
  if (region == nullptr) return Raise(why);
  auto* self = reinterpret_cast<RegionObject*>(
      reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0));
  if (self == nullptr) return nullptr;
  new (&self->region) std::shared_ptr<Region>(std::move(region));
  return reinterpret_cast<PyObject*>(self);
}

template <typename Object, auto kMember>
void Free(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // Joins the region's thread, perhaps, which never asks for the interpreter.
  std::destroy_at(&(reinterpret_cast<Object*>(object)->*kMember));
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

Region& RegionOf(PyObject* self) { return *reinterpret_cast<RegionObject*>(self)->region; }

PyObject* Prepare(PyObject* self, PyObject* gpu) {
  PyObject* bytes = PyUnicode_AsUTF8String(gpu);
  if (bytes == nullptr) return nullptr;
  const std::string name = PyBytes_AsString(bytes);
  Py_DECREF(bytes);
  return NoneOr(RegionOf(self).Prepare(name));
}

PyObject* CheckRegion(PyObject* self, PyObject*) { return NoneOr(RegionOf(self).Ended()); }

PyMethodDef region_methods[] = {
    {"prepare", Prepare, METH_O, "Makes the region reachable for the GPU of that UUID."},
    {"check", CheckRegion, METH_NOARGS, "Raises once the daemon or the session has ended."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot region_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(NewRegion)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Free<RegionObject, &RegionObject::region>)},
    {Py_tp_methods, region_methods},
    {Py_tp_doc, const_cast<char*>("A session's region of slots, mapped and watched.")},
    {0, nullptr},
};

PyType_Spec region_spec = {"gemmd._native.Region", sizeof(RegionObject), 0, Py_TPFLAGS_DEFAULT,
                           region_slots};

// Slot(region, index, rung_by_stream, gpu_uuid)

PyObject* NewSlot(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* region = nullptr;
  unsigned index = 0;
  int by_stream = 0;
  const char* gpu = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!Ips", region_type, &region, &index, &by_stream, &gpu)) {
    return nullptr;
  }
  if (index >= RegionOf(region).slots()) {
    PyErr_Format(PyExc_ValueError, "slot %u of a region of %u", index, RegionOf(region).slots());
    return nullptr;
  }
  auto* self = reinterpret_cast<SlotObject*>(
      reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0));
  if (self == nullptr) return nullptr;
  new (&self->slot) std::unique_ptr<Slot>(
      std::make_unique<Slot>(reinterpret_cast<RegionObject*>(region)->region, index,
                             Slot::Options{.rung_by_stream = by_stream != 0, .gpu_uuid = gpu}));
  return reinterpret_cast<PyObject*>(self);
}

Slot& SlotOf(PyObject* self) { return *reinterpret_cast<SlotObject*>(self)->slot; }

PyObject* Ring(PyObject* self, PyObject*) { return NoneOr(SlotOf(self).Ring()); }

// What Wait came to; the interpreter serves other threads meanwhile.
Outcome WaitWithoutLock(Slot& slot, double timeout_s) {
  Outcome outcome;
  Py_BEGIN_ALLOW_THREADS;
  outcome = slot.Wait(timeout_s);
  Py_END_ALLOW_THREADS;
  return outcome;
}

// Waits in parts, so that Ctrl-C is heard.
PyObject* Wait(PyObject* self, PyObject* timeout) {
  constexpr double kPartS = 0.2;
  const double limit = PyFloat_AsDouble(timeout);
  if (limit == -1 && PyErr_Occurred() != nullptr) return nullptr;
  double left = limit;
  for (;;) {
    const bool last = limit >= 0 && left <= kPartS;
    const Outcome outcome = WaitWithoutLock(SlotOf(self), last ? left : kPartS);
    if (outcome.code != Code::kDeadlineExceeded || last) return NoneOr(outcome);
    if (PyErr_CheckSignals() != 0) return nullptr;
    left -= kPartS;
  }
}

PyObject* Done(PyObject* self, PyObject*) { return PyBool_FromLong(SlotOf(self).Done()); }

PyObject* RingOn(PyObject* self, PyObject* stream) {
  uint64_t handle = 0;
  if (!AsWords(&stream, 1, 1, &handle)) return nullptr;
  return NoneOr(SlotOf(self).RingOn(StreamOf(handle)));
}

PyObject* WaitOn(PyObject* self, PyObject* stream) {
  uint64_t handle = 0;
  if (!AsWords(&stream, 1, 1, &handle)) return nullptr;
  return NoneOr(SlotOf(self).WaitOn(StreamOf(handle)));
}

PyObject* CallOn(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  uint64_t words[8];
  if (!AsWords(arguments, count, 8, words)) return nullptr;
  const DeviceCopy before = {words[1], words[2], words[3]};
  const DeviceCopy after = {words[4], words[5], words[6]};
  return NoneOr(SlotOf(self).CallOn(StreamOf(words[0]), before, after, words[7]));
}

PyObject* CheckSlot(PyObject* self, PyObject*) { return NoneOr(SlotOf(self).Status()); }

PyObject* Report(PyObject* self, PyObject*) {
  const RunReport report = SlotOf(self).Report();
  return Py_BuildValue("KKKiss", static_cast<unsigned long long>(report.run),
                       static_cast<unsigned long long>(report.device_ns),
                       static_cast<unsigned long long>(report.queued_ns), report.code,
                       report.reason.c_str(), report.message.c_str());
}

PyMethodDef slot_methods[] = {
    {"ring", Ring, METH_NOARGS, "Runs the plan once more; the host's ring."},
    {"wait", Wait, METH_O, "Waits so many seconds for it; below 0: for ever."},
    {"done", Done, METH_NOARGS, "Whether wait would return at once."},
    {"ring_on", RingOn, METH_O, "The same ring by a CUDA stream, given by its handle."},
    {"wait_on", WaitOn, METH_O, "A wait of a CUDA stream."},
    {"call_on", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(CallOn)), METH_FASTCALL,
     "(stream, to, from, size, to, from, size, more): copy, ring, wait, copy, all by the stream; "
     "`more` bytes behind the first copy's become 0xFF."},
    {"check", CheckSlot, METH_NOARGS, "Raises the error of the last run that was answered."},
    {"report", Report, METH_NOARGS, "(run, device_ns, queued_ns, code, reason, message)."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slot_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(NewSlot)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Free<SlotObject, &SlotObject::slot>)},
    {Py_tp_methods, slot_methods},
    {Py_tp_doc, const_cast<char*>("An armed plan's slot.")},
    {0, nullptr},
};

PyType_Spec slot_spec = {"gemmd._native.Slot", sizeof(SlotObject), 0, Py_TPFLAGS_DEFAULT,
                         slot_slots};

PyObject* SetErrors(PyObject*, PyObject* make) {
  Py_XDECREF(make_error);
  Py_INCREF(make);
  make_error = make;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_errors", SetErrors, METH_O, "What makes an exception of (code, message)."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "gemmd._native",
                          "Armed plans' hot path.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  PyObject* region = PyType_FromSpec(&region_spec);
  PyObject* slot = PyType_FromSpec(&slot_spec);
  if (region == nullptr || slot == nullptr ||
      PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(region)) != 0 ||
      PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(slot)) != 0) {
    return nullptr;
  }
  region_type = reinterpret_cast<PyTypeObject*>(region);
  return module;
}
