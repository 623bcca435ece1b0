"""The memory of the GPU that is used while a command runs, by NVIDIA's management library."""

import ctypes
import threading
import time
from typing import Optional


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Watch:
    """Looks every few milliseconds at what the first GPU has in use; `peak` is the most above what it was at the start.

        with Watch() as watch:
            ...
        watch.peak

    `peak` is None where the library is missing.
    """

    def __init__(self, pause: float = 0.001):
        self.peak: Optional[int] = None
        self.pause = pause
        self.stop = threading.Event()
        self.library = self._open()

    @staticmethod
    def _open():
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
        return library if library.nvmlInit_v2() == 0 else None

    def _used(self) -> Optional[int]:
        memory = _Memory()
        if self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) != 0:
            return None
        return memory.used

    def __enter__(self) -> "Watch":
        if self.library is None:
            return self
        self.device = ctypes.c_void_p()
        if self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) != 0:
            self.library = None
            return self
        self.before = self._used()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.stop.is_set():
            used = self._used()
            if used is not None and self.before is not None:
                self.peak = max(self.peak or 0, used - self.before)
            time.sleep(self.pause)

    def __exit__(self, *_) -> None:
        self.stop.set()
        if self.library is not None:
            self.thread.join()
