package codec

import (
	"encoding/binary"
)

// FrameHeader is how many bytes of a protobuf frame tell its length. A transport that delimits messages itself leaves them out.
const FrameHeader = 4

// AppendEvent appends one frame of a watch: a WatchEvent of type typ around an encoded object.
func AppendEvent(dst []byte, media Media, typ string, object []byte) []byte {
	switch media {
	case Protobuf:
		return appendEventProtobuf(dst, typ, object)
	case CBOR:
		return appendEventCBOR(dst, typ, object)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, typ...)
	dst = append(dst, `","object":`...)
	dst = append(dst, object...)
	return append(dst, "}\n"...)
}

// appendEventProtobuf writes metav1.WatchEvent{Type, Object: RawExtension{Raw}} after its length as four big-endian bytes, which is how the
// API delimits protobuf frames.
func appendEventProtobuf(dst []byte, typ string, object []byte) []byte {
	raw := 1 + uvarintLen(len(object)) + len(object)
	size := 1 + uvarintLen(len(typ)) + len(typ) + 1 + uvarintLen(raw) + raw
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(len(typ)))
	dst = append(dst, typ...)
	dst = append(dst, 0x12)
	dst = binary.AppendUvarint(dst, uint64(raw))
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(len(object)))
	return append(dst, object...)
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}
