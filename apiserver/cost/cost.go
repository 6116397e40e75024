// Package cost measures, for tests, what a request makes a server allocate and hold, and bounds it by what the client sent. Only one request may be measured
// at a time, and nothing else should run beside it.
package cost

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/yare-project/yare/apiserver/stored"
)

// What one request may cost, by the bytes that the client sends (headers and query counted), beyond a constant: held is what stays when it is answered, made is
// all that was allocated on the way, so that it bounds the peak. A document of the shortest fields costs the most for each of its bytes: those that clients send
// cost a fifth. The constant leaves room for one stored object of 20,000 keys: its map alone has 32,768 places of 33 bytes.
const (
	heldPerByte  = 2
	madePerByte  = 220
	heldConstant = 3 << 19
	madeConstant = 24 << 20
)

// Spent is what a request cost, in bytes: allocated on the way, and still held once it was answered.
type Spent struct{ Made, Held int64 }

// Of has a request served. The recorder does not keep the answer's body.
func Of(h http.Handler, req *http.Request) (*httptest.ResponseRecorder, Spent) {
	w := httptest.NewRecorder()
	w.Body = nil
	var before, after, settled runtime.MemStats
	collect()
	runtime.ReadMemStats(&before)
	h.ServeHTTP(w, req)
	runtime.ReadMemStats(&after)
	collect()
	runtime.ReadMemStats(&settled)
	return w, Spent{int64(after.TotalAlloc - before.TotalAlloc), int64(settled.HeapAlloc) - int64(before.HeapAlloc)}
}

// collect empties pools and lets go of recent documents, which are bounded in all.
func collect() {
	stored.Forget()
	runtime.GC()
	runtime.GC()
	runtime.GC()
}

// Check fails the test if a request of so many bytes cost more than it may, or was answered with a fault of the server's.
func Check(t testing.TB, sent int64, w *httptest.ResponseRecorder, s Spent) {
	t.Helper()
	t.Logf("%d: %d bytes sent, %d made (%.1f a byte), %d held", w.Code, sent, s.Made, float64(s.Made)/float64(sent), s.Held)
	if s.Made > madePerByte*sent+madeConstant {
		t.Errorf("%d bytes made the server allocate %d", sent, s.Made)
	}
	if s.Held > heldPerByte*sent+heldConstant {
		t.Errorf("%d bytes made the server hold %d", sent, s.Held)
	}
	if w.Code == http.StatusInternalServerError {
		t.Error("answered with 500: a fault")
	}
}
