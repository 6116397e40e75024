package server

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/internal/reread"
)

// tokensIn reads a file of tokens: a line each, of token, user, uid and, quoted, groups (Kubernetes documentation, "Static token file"). No path is no tokens.
func tokensIn(path string) ([]authn.StaticToken, error) {
	if path == "" {
		return nil, nil
	}
	data, err := reread.Read(path)
	if err != nil {
		return nil, err
	}
	var out []authn.StaticToken
	lines := csv.NewReader(bytes.NewReader(data))
	lines.FieldsPerRecord, lines.TrimLeadingSpace = -1, true
	known := map[string]bool{}
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		line, _ := lines.FieldPos(0)
		switch {
		case len(fields) < 3:
			return nil, fmt.Errorf("%s, line %d: it has %d fields: give a token, a user and a uid", path, line, len(fields))
		case fields[0] == "" || fields[1] == "":
			return nil, fmt.Errorf("%s, line %d: its token or its user is empty", path, line)
		case known[fields[0]]:
			return nil, fmt.Errorf("%s, line %d: its token is another line's too", path, line)
		}
		known[fields[0]] = true
		who := &user.DefaultInfo{Name: fields[1], UID: fields[2]}
		if len(fields) > 3 && fields[3] != "" {
			who.Groups = strings.Split(fields[3], ",")
		}
		out = append(out, authn.StaticToken{Token: fields[0], User: who})
	}
}
