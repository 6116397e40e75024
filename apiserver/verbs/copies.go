package verbs

import (
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// maxCopied bounds what the copy operations of one JSON patch may add, in bytes, as Kubernetes: each may double a document.
const maxCopied = 3 << 20

// limitCopies sets the bound. The library keeps it in a variable of its own, for the whole process.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxCopied })
