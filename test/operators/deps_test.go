package operators

// What controller-runtime's own suites need besides what controller-runtime needs: a module's tests are no part of its requirements.
import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "go.uber.org/goleak"
)
