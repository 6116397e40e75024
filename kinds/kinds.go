// Package kinds lists the groups of built-in kinds. Each group is a package below it, each kind a file there.
package kinds

import (
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/authentication"
	"github.com/yare-project/yare/kinds/authorization"
	"github.com/yare-project/yare/kinds/certificates"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rbac"
)

// Groups returns every built-in group.
func Groups() []*kind.Group {
	return []*kind.Group{&core.Group, &authentication.Group, &authorization.Group, &certificates.Group, &rbac.Group}
}
