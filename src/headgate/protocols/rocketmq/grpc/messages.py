# Made from definition.proto and service.proto of Apache RocketMQ by tools/rocketmq_messages.py; not edited by hand.
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements; the ASF licenses
# them under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0

"""The messages of `apache.rocketmq.v2.MessagingService`, in a descriptor pool of their own."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2

SERVICE = "apache.rocketmq.v2.MessagingService"

_POOL = descriptor_pool.DescriptorPool()
for _file in (
    timestamp_pb2.DESCRIPTOR.serialized_pb,
    duration_pb2.DESCRIPTOR.serialized_pb,
    (
        b'\n#apache/rocketmq/v2/def'
        b'inition.proto\x12\x12apache.ro'
        b'cketmq.v2\x1a\x1fgoogle/protob'
        b'uf/timestamp.proto\x1a\x1egoog'
        b'le/protobuf/duration.pro'
        b'to"f\n\x10FilterExpression\x122'
        b'\n\x04type\x18\x01 \x01(\x0e2\x1e.apache.ro'
        b'cketmq.v2.FilterTypeR\x04ty'
        b'pe\x12\x1e\n\nexpression\x18\x02 \x01(\tR\n'
        b'expression"\xef\x01\n\x0bRetryPoli'
        b'cy\x12!\n\x0cmax_attempts\x18\x01 \x01(\x05'
        b'R\x0bmaxAttempts\x12Y\n\x13exponen'
        b'tial_backoff\x18\x02 \x01(\x0b2&.apa'
        b'che.rocketmq.v2.Exponent'
        b'ialBackoffH\x00R\x12exponentia'
        b'lBackoff\x12V\n\x12customized_b'
        b'ackoff\x18\x03 \x01(\x0b2%.apache.ro'
        b'cketmq.v2.CustomizedBack'
        b'offH\x00R\x11customizedBackoff'
        b'B\n\n\x08strategy"\x96\x01\n\x12Exponen'
        b'tialBackoff\x123\n\x07initial\x18\x01'
        b' \x01(\x0b2\x19.google.protobuf.D'
        b'urationR\x07initial\x12+\n\x03max\x18'
        b'\x02 \x01(\x0b2\x19.google.protobuf.'
        b'DurationR\x03max\x12\x1e\n\nmultipl'
        b'ier\x18\x03 \x01(\x02R\nmultiplier"B\n'
        b'\x11CustomizedBackoff\x12-\n\x04ne'
        b'xt\x18\x01 \x03(\x0b2\x19.google.protob'
        b'uf.DurationR\x04next"M\n\x08Res'
        b'ource\x12-\n\x12resource_namesp'
        b'ace\x18\x01 \x01(\tR\x11resourceNames'
        b'pace\x12\x12\n\x04name\x18\x02 \x01(\tR\x04name'
        b'"\x8d\x01\n\x11SubscriptionEntry\x122'
        b'\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.r'
        b'ocketmq.v2.ResourceR\x05top'
        b'ic\x12D\n\nexpression\x18\x02 \x01(\x0b2$'
        b'.apache.rocketmq.v2.Filt'
        b'erExpressionR\nexpression'
        b'"1\n\x07Address\x12\x12\n\x04host\x18\x01 \x01('
        b'\tR\x04host\x12\x12\n\x04port\x18\x02 \x01(\x05R\x04p'
        b'ort"\x81\x01\n\tEndpoints\x129\n\x06sch'
        b'eme\x18\x01 \x01(\x0e2!.apache.rocke'
        b'tmq.v2.AddressSchemeR\x06sc'
        b'heme\x129\n\taddresses\x18\x02 \x03(\x0b2'
        b'\x1b.apache.rocketmq.v2.Add'
        b'ressR\taddresses"i\n\x06Broke'
        b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x0e\n'
        b'\x02id\x18\x02 \x01(\x05R\x02id\x12;\n\tendpoin'
        b'ts\x18\x03 \x01(\x0b2\x1d.apache.rocket'
        b'mq.v2.EndpointsR\tendpoin'
        b'ts"\x99\x02\n\x0cMessageQueue\x122\n\x05t'
        b'opic\x18\x01 \x01(\x0b2\x1c.apache.rock'
        b'etmq.v2.ResourceR\x05topic\x12'
        b'\x0e\n\x02id\x18\x02 \x01(\x05R\x02id\x12>\n\npermi'
        b'ssion\x18\x03 \x01(\x0e2\x1e.apache.roc'
        b'ketmq.v2.PermissionR\nper'
        b'mission\x122\n\x06broker\x18\x04 \x01(\x0b2'
        b'\x1a.apache.rocketmq.v2.Bro'
        b'kerR\x06broker\x12Q\n\x14accept_me'
        b'ssage_types\x18\x05 \x03(\x0e2\x1f.apac'
        b'he.rocketmq.v2.MessageTy'
        b'peR\x12acceptMessageTypes"X'
        b'\n\x06Digest\x122\n\x04type\x18\x01 \x01(\x0e2\x1e'
        b'.apache.rocketmq.v2.Dige'
        b'stTypeR\x04type\x12\x1a\n\x08checksum'
        b'\x18\x02 \x01(\tR\x08checksum"\x8f\x0b\n\x10Sys'
        b'temProperties\x12\x15\n\x03tag\x18\x01 \x01'
        b'(\tH\x00R\x03tag\x88\x01\x01\x12\x12\n\x04keys\x18\x02 \x03'
        b'(\tR\x04keys\x12\x1d\n\nmessage_id\x18\x03'
        b' \x01(\tR\tmessageId\x12;\n\x0bbody_'
        b'digest\x18\x04 \x01(\x0b2\x1a.apache.ro'
        b'cketmq.v2.DigestR\nbodyDi'
        b'gest\x12A\n\rbody_encoding\x18\x05 '
        b'\x01(\x0e2\x1c.apache.rocketmq.v2'
        b'.EncodingR\x0cbodyEncoding\x12'
        b'B\n\x0cmessage_type\x18\x06 \x01(\x0e2\x1f.'
        b'apache.rocketmq.v2.Messa'
        b'geTypeR\x0bmessageType\x12A\n\x0eb'
        b'orn_timestamp\x18\x07 \x01(\x0b2\x1a.go'
        b'ogle.protobuf.TimestampR'
        b'\rbornTimestamp\x12\x1b\n\tborn_h'
        b'ost\x18\x08 \x01(\tR\x08bornHost\x12H\n\x0fs'
        b'tore_timestamp\x18\t \x01(\x0b2\x1a.g'
        b'oogle.protobuf.Timestamp'
        b'H\x01R\x0estoreTimestamp\x88\x01\x01\x12\x1d\n'
        b'\nstore_host\x18\n \x01(\tR\tstore'
        b'Host\x12N\n\x12delivery_timesta'
        b'mp\x18\x0b \x01(\x0b2\x1a.google.protob'
        b'uf.TimestampH\x02R\x11delivery'
        b'Timestamp\x88\x01\x01\x12*\n\x0ereceipt_'
        b'handle\x18\x0c \x01(\tH\x03R\rreceiptH'
        b'andle\x88\x01\x01\x12\x19\n\x08queue_id\x18\r \x01'
        b'(\x05R\x07queueId\x12&\n\x0cqueue_off'
        b'set\x18\x0e \x01(\x03H\x04R\x0bqueueOffset'
        b'\x88\x01\x01\x12M\n\x12invisible_duratio'
        b'n\x18\x0f \x01(\x0b2\x19.google.protobu'
        b'f.DurationH\x05R\x11invisibleD'
        b'uration\x88\x01\x01\x12.\n\x10delivery_a'
        b'ttempt\x18\x10 \x01(\x05H\x06R\x0fdelivery'
        b'Attempt\x88\x01\x01\x12(\n\rmessage_gr'
        b'oup\x18\x11 \x01(\tH\x07R\x0cmessageGrou'
        b'p\x88\x01\x01\x12(\n\rtrace_context\x18\x12 '
        b'\x01(\tH\x08R\x0ctraceContext\x88\x01\x01\x12s'
        b'\n&orphaned_transaction_r'
        b'ecovery_duration\x18\x13 \x01(\x0b2\x19'
        b'.google.protobuf.Duratio'
        b'nH\tR#orphanedTransaction'
        b'RecoveryDuration\x88\x01\x01\x12T\n\x11d'
        b'ead_letter_queue\x18\x14 \x01(\x0b2#'
        b'.apache.rocketmq.v2.Dead'
        b'LetterQueueH\nR\x0fdeadLette'
        b'rQueue\x88\x01\x01\x12"\n\nlite_topic\x18'
        b'\x15 \x01(\tH\x0bR\tliteTopic\x88\x01\x01\x12\x1f\n'
        b'\x08priority\x18\x16 \x01(\x05H\x0cR\x08prior'
        b'ity\x88\x01\x01B\x06\n\x04_tagB\x12\n\x10_store'
        b'_timestampB\x15\n\x13_delivery_'
        b'timestampB\x11\n\x0f_receipt_ha'
        b'ndleB\x0f\n\r_queue_offsetB\x15\n'
        b'\x13_invisible_durationB\x13\n\x11'
        b'_delivery_attemptB\x10\n\x0e_me'
        b'ssage_groupB\x10\n\x0e_trace_co'
        b"ntextB)\n'_orphaned_trans"
        b'action_recovery_duration'
        b'B\x14\n\x12_dead_letter_queueB\r'
        b'\n\x0b_lite_topicB\x0b\n\t_priori'
        b'ty"F\n\x0fDeadLetterQueue\x12\x14\n'
        b'\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1d\n\nm'
        b'essage_id\x18\x02 \x01(\tR\tmessage'
        b'Id"\xc1\x02\n\x07Message\x122\n\x05topic\x18'
        b'\x01 \x01(\x0b2\x1c.apache.rocketmq.'
        b'v2.ResourceR\x05topic\x12X\n\x0fus'
        b'er_properties\x18\x02 \x03(\x0b2/.ap'
        b'ache.rocketmq.v2.Message'
        b'.UserPropertiesEntryR\x0eus'
        b'erProperties\x12Q\n\x11system_p'
        b'roperties\x18\x03 \x01(\x0b2$.apache'
        b'.rocketmq.v2.SystemPrope'
        b'rtiesR\x10systemProperties\x12'
        b'\x12\n\x04body\x18\x04 \x01(\x0cR\x04body\x1aA\n\x13U'
        b'serPropertiesEntry\x12\x10\n\x03ke'
        b'y\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 '
        b'\x01(\tR\x05value:\x028\x01"S\n\nAssign'
        b'ment\x12E\n\rmessage_queue\x18\x01 '
        b'\x01(\x0b2 .apache.rocketmq.v2'
        b'.MessageQueueR\x0cmessageQu'
        b'eue"P\n\x06Status\x12,\n\x04code\x18\x01 '
        b'\x01(\x0e2\x18.apache.rocketmq.v2'
        b'.CodeR\x04code\x12\x18\n\x07message\x18\x02'
        b' \x01(\tR\x07message"\x90\x01\n\x02UA\x128\n\x08'
        b'language\x18\x01 \x01(\x0e2\x1c.apache.'
        b'rocketmq.v2.LanguageR\x08la'
        b'nguage\x12\x18\n\x07version\x18\x02 \x01(\tR'
        b'\x07version\x12\x1a\n\x08platform\x18\x03 \x01'
        b'(\tR\x08platform\x12\x1a\n\x08hostname'
        b'\x18\x04 \x01(\tR\x08hostname"\xf5\x04\n\x08Set'
        b'tings\x12D\n\x0bclient_type\x18\x01 \x01'
        b'(\x0e2\x1e.apache.rocketmq.v2.'
        b'ClientTypeH\x01R\nclientType'
        b'\x88\x01\x01\x12E\n\x0caccess_point\x18\x02 \x01('
        b'\x0b2\x1d.apache.rocketmq.v2.E'
        b'ndpointsH\x02R\x0baccessPoint\x88'
        b'\x01\x01\x12K\n\x0ebackoff_policy\x18\x03 \x01'
        b'(\x0b2\x1f.apache.rocketmq.v2.'
        b'RetryPolicyH\x03R\rbackoffPo'
        b'licy\x88\x01\x01\x12G\n\x0frequest_timeo'
        b'ut\x18\x04 \x01(\x0b2\x19.google.protob'
        b'uf.DurationH\x04R\x0erequestTi'
        b'meout\x88\x01\x01\x12@\n\npublishing\x18\x05'
        b' \x01(\x0b2\x1e.apache.rocketmq.v'
        b'2.PublishingH\x00R\npublishi'
        b'ng\x12F\n\x0csubscription\x18\x06 \x01(\x0b'
        b'2 .apache.rocketmq.v2.Su'
        b'bscriptionH\x00R\x0csubscripti'
        b'on\x125\n\nuser_agent\x18\x07 \x01(\x0b2\x16'
        b'.apache.rocketmq.v2.UAR\t'
        b'userAgent\x122\n\x06metric\x18\x08 \x01('
        b'\x0b2\x1a.apache.rocketmq.v2.M'
        b'etricR\x06metricB\t\n\x07pub_sub'
        b'B\x0e\n\x0c_client_typeB\x0f\n\r_acc'
        b'ess_pointB\x11\n\x0f_backoff_po'
        b'licyB\x12\n\x10_request_timeout'
        b'"\x9a\x01\n\nPublishing\x124\n\x06topic'
        b's\x18\x01 \x03(\x0b2\x1c.apache.rocketm'
        b'q.v2.ResourceR\x06topics\x12"\n'
        b'\rmax_body_size\x18\x02 \x01(\x05R\x0bma'
        b'xBodySize\x122\n\x15validate_me'
        b'ssage_type\x18\x03 \x01(\x08R\x13valida'
        b'teMessageType"\x9a\x04\n\x0cSubscr'
        b'iption\x127\n\x05group\x18\x01 \x01(\x0b2\x1c.'
        b'apache.rocketmq.v2.Resou'
        b'rceH\x00R\x05group\x88\x01\x01\x12K\n\rsubsc'
        b'riptions\x18\x02 \x03(\x0b2%.apache.'
        b'rocketmq.v2.Subscription'
        b'EntryR\rsubscriptions\x12\x17\n\x04'
        b'fifo\x18\x03 \x01(\x08H\x01R\x04fifo\x88\x01\x01\x121\n'
        b'\x12receive_batch_size\x18\x04 \x01('
        b'\x05H\x02R\x10receiveBatchSize\x88\x01\x01'
        b'\x12P\n\x14long_polling_timeout'
        b'\x18\x05 \x01(\x0b2\x19.google.protobuf'
        b'.DurationH\x03R\x12longPolling'
        b'Timeout\x88\x01\x01\x12;\n\x17lite_subsc'
        b'ription_quota\x18\x06 \x01(\x05H\x04R\x15l'
        b'iteSubscriptionQuota\x88\x01\x01\x12'
        b'2\n\x13max_lite_topic_size\x18\x07'
        b' \x01(\x05H\x05R\x10maxLiteTopicSize'
        b'\x88\x01\x01B\x08\n\x06_groupB\x07\n\x05_fifoB\x15'
        b'\n\x13_receive_batch_sizeB\x17\n'
        b'\x15_long_polling_timeoutB\x1a'
        b'\n\x18_lite_subscription_quo'
        b'taB\x16\n\x14_max_lite_topic_si'
        b'ze"h\n\x06Metric\x12\x0e\n\x02on\x18\x01 \x01(\x08'
        b'R\x02on\x12@\n\tendpoints\x18\x02 \x01(\x0b2'
        b'\x1d.apache.rocketmq.v2.End'
        b'pointsH\x00R\tendpoints\x88\x01\x01B\x0c'
        b'\n\n_endpoints"\xd9\x01\n\x0cOffsetO'
        b"ption\x12A\n\x06policy\x18\x01 \x01(\x0e2'."
        b'apache.rocketmq.v2.Offse'
        b'tOption.PolicyH\x00R\x06policy'
        b'\x12\x18\n\x06offset\x18\x02 \x01(\x03H\x00R\x06offs'
        b'et\x12\x17\n\x06tail_n\x18\x03 \x01(\x03H\x00R\x05ta'
        b'ilN\x12\x1e\n\ttimestamp\x18\x04 \x01(\x03H\x00'
        b'R\ttimestamp"$\n\x06Policy\x12\x08\n'
        b'\x04LAST\x10\x00\x12\x07\n\x03MIN\x10\x01\x12\x07\n\x03MAX\x10'
        b'\x02B\r\n\x0boffset_type*Y\n\x15Tran'
        b'sactionResolution\x12&\n"TRA'
        b'NSACTION_RESOLUTION_UNSP'
        b'ECIFIED\x10\x00\x12\n\n\x06COMMIT\x10\x01\x12\x0c\n'
        b'\x08ROLLBACK\x10\x02*W\n\x11Transacti'
        b'onSource\x12\x16\n\x12SOURCE_UNSPE'
        b'CIFIED\x10\x00\x12\x11\n\rSOURCE_CLIEN'
        b'T\x10\x01\x12\x17\n\x13SOURCE_SERVER_CHE'
        b'CK\x10\x02*W\n\nPermission\x12\x1a\n\x16PE'
        b'RMISSION_UNSPECIFIED\x10\x00\x12\x08'
        b'\n\x04NONE\x10\x01\x12\x08\n\x04READ\x10\x02\x12\t\n\x05WR'
        b'ITE\x10\x03\x12\x0e\n\nREAD_WRITE\x10\x04*;\n'
        b'\nFilterType\x12\x1b\n\x17FILTER_TY'
        b'PE_UNSPECIFIED\x10\x00\x12\x07\n\x03TAG\x10'
        b'\x01\x12\x07\n\x03SQL\x10\x02*T\n\rAddressSch'
        b'eme\x12\x1e\n\x1aADDRESS_SCHEME_UN'
        b'SPECIFIED\x10\x00\x12\x08\n\x04IPv4\x10\x01\x12\x08\n'
        b'\x04IPv6\x10\x02\x12\x0f\n\x0bDOMAIN_NAME\x10\x03'
        b'*u\n\x0bMessageType\x12\x1c\n\x18MESSA'
        b'GE_TYPE_UNSPECIFIED\x10\x00\x12\n\n'
        b'\x06NORMAL\x10\x01\x12\x08\n\x04FIFO\x10\x02\x12\t\n\x05D'
        b'ELAY\x10\x03\x12\x0f\n\x0bTRANSACTION\x10\x04\x12'
        b'\x08\n\x04LITE\x10\x05\x12\x0c\n\x08PRIORITY\x10\x06*'
        b'G\n\nDigestType\x12\x1b\n\x17DIGEST_'
        b'TYPE_UNSPECIFIED\x10\x00\x12\t\n\x05CR'
        b'C32\x10\x01\x12\x07\n\x03MD5\x10\x02\x12\x08\n\x04SHA1\x10\x03'
        b'*\xa4\x01\n\nClientType\x12\x1b\n\x17CLIEN'
        b'T_TYPE_UNSPECIFIED\x10\x00\x12\x0c\n\x08'
        b'PRODUCER\x10\x01\x12\x11\n\rPUSH_CONSU'
        b'MER\x10\x02\x12\x13\n\x0fSIMPLE_CONSUMER'
        b'\x10\x03\x12\x11\n\rPULL_CONSUMER\x10\x04\x12\x16\n'
        b'\x12LITE_PUSH_CONSUMER\x10\x05\x12\x18\n'
        b'\x14LITE_SIMPLE_CONSUMER\x10\x06*'
        b'<\n\x08Encoding\x12\x18\n\x14ENCODING_'
        b'UNSPECIFIED\x10\x00\x12\x0c\n\x08IDENTIT'
        b'Y\x10\x01\x12\x08\n\x04GZIP\x10\x02*\xa9\x0b\n\x04Code\x12\x14'
        b'\n\x10CODE_UNSPECIFIED\x10\x00\x12\x08\n\x02'
        b'OK\x10\xa0\x9c\x01\x12\x16\n\x10MULTIPLE_RESUL'
        b'TS\x10\xb0\xea\x01\x12\x11\n\x0bBAD_REQUEST\x10\xc0\xb8'
        b'\x02\x12\x1a\n\x14ILLEGAL_ACCESS_POIN'
        b'T\x10\xc1\xb8\x02\x12\x13\n\rILLEGAL_TOPIC\x10\xc2'
        b'\xb8\x02\x12\x1c\n\x16ILLEGAL_CONSUMER_G'
        b'ROUP\x10\xc3\xb8\x02\x12\x19\n\x13ILLEGAL_MESS'
        b'AGE_TAG\x10\xc4\xb8\x02\x12\x19\n\x13ILLEGAL_M'
        b'ESSAGE_KEY\x10\xc5\xb8\x02\x12\x1b\n\x15ILLEGA'
        b'L_MESSAGE_GROUP\x10\xc6\xb8\x02\x12"\n\x1cI'
        b'LLEGAL_MESSAGE_PROPERTY_'
        b'KEY\x10\xc7\xb8\x02\x12\x1c\n\x16INVALID_TRANS'
        b'ACTION_ID\x10\xc8\xb8\x02\x12\x18\n\x12ILLEGAL'
        b'_MESSAGE_ID\x10\xc9\xb8\x02\x12\x1f\n\x19ILLEG'
        b'AL_FILTER_EXPRESSION\x10\xca\xb8\x02'
        b'\x12\x1c\n\x16ILLEGAL_INVISIBLE_TI'
        b'ME\x10\xcb\xb8\x02\x12\x1b\n\x15ILLEGAL_DELIVE'
        b'RY_TIME\x10\xcc\xb8\x02\x12\x1c\n\x16INVALID_R'
        b'ECEIPT_HANDLE\x10\xcd\xb8\x02\x12)\n#MES'
        b'SAGE_PROPERTY_CONFLICT_W'
        b'ITH_TYPE\x10\xce\xb8\x02\x12\x1e\n\x18UNRECOGN'
        b'IZED_CLIENT_TYPE\x10\xcf\xb8\x02\x12\x17\n\x11'
        b'MESSAGE_CORRUPTED\x10\xd0\xb8\x02\x12\x18\n'
        b'\x12CLIENT_ID_REQUIRED\x10\xd1\xb8\x02\x12'
        b'\x1a\n\x14ILLEGAL_POLLING_TIME\x10'
        b'\xd2\xb8\x02\x12\x14\n\x0eILLEGAL_OFFSET\x10\xd3\xb8'
        b'\x02\x12\x18\n\x12ILLEGAL_LITE_TOPIC\x10'
        b'\xd4\xb8\x02\x12\x12\n\x0cUNAUTHORIZED\x10\xa4\xb9\x02\x12'
        b'\x16\n\x10PAYMENT_REQUIRED\x10\x88\xba\x02\x12'
        b'\x0f\n\tFORBIDDEN\x10\xec\xba\x02\x12\x0f\n\tNOT_'
        b'FOUND\x10\xd0\xbb\x02\x12\x17\n\x11MESSAGE_NOT'
        b'_FOUND\x10\xd1\xbb\x02\x12\x15\n\x0fTOPIC_NOT_'
        b'FOUND\x10\xd2\xbb\x02\x12\x1e\n\x18CONSUMER_GR'
        b'OUP_NOT_FOUND\x10\xd3\xbb\x02\x12\x16\n\x10OFF'
        b'SET_NOT_FOUND\x10\xd4\xbb\x02\x12\x15\n\x0fREQ'
        b'UEST_TIMEOUT\x10\xe0\xbe\x02\x12\x17\n\x11PAYL'
        b'OAD_TOO_LARGE\x10\xd4\xc2\x02\x12\x1c\n\x16MES'
        b'SAGE_BODY_TOO_LARGE\x10\xd5\xc2\x02\x12'
        b'\x18\n\x12MESSAGE_BODY_EMPTY\x10\xd6\xc2'
        b'\x02\x12\x19\n\x13PRECONDITION_FAILED'
        b'\x10\xb0\xce\x02\x12\x17\n\x11TOO_MANY_REQUEST'
        b'S\x10\x94\xcf\x02\x12\x1f\n\x19LITE_TOPIC_QUOT'
        b'A_EXCEEDED\x10\x95\xcf\x02\x12&\n LITE_S'
        b'UBSCRIPTION_QUOTA_EXCEED'
        b'ED\x10\x96\xcf\x02\x12%\n\x1fREQUEST_HEADER'
        b'_FIELDS_TOO_LARGE\x10\xdc\xd0\x02\x12"\n'
        b'\x1cMESSAGE_PROPERTIES_TOO_'
        b'LARGE\x10\xdd\xd0\x02\x12\x14\n\x0eINTERNAL_ER'
        b'ROR\x10\xd0\x86\x03\x12\x1b\n\x15INTERNAL_SERV'
        b'ER_ERROR\x10\xd1\x86\x03\x12\x16\n\x10HA_NOT_A'
        b'VAILABLE\x10\xd2\x86\x03\x12\x15\n\x0fNOT_IMPL'
        b'EMENTED\x10\xb4\x87\x03\x12\x13\n\rPROXY_TIM'
        b'EOUT\x10\xe0\x89\x03\x12 \n\x1aMASTER_PERSI'
        b'STENCE_TIMEOUT\x10\xe1\x89\x03\x12\x1f\n\x19SL'
        b'AVE_PERSISTENCE_TIMEOUT\x10'
        b'\xe2\x89\x03\x12\x11\n\x0bUNSUPPORTED\x10\xc4\x8a\x03\x12\x19'
        b'\n\x13VERSION_UNSUPPORTED\x10\xc5\x8a'
        b'\x03\x12%\n\x1fVERIFY_FIFO_MESSAGE'
        b'_UNSUPPORTED\x10\xc6\x8a\x03\x12\x1f\n\x19FAIL'
        b'ED_TO_CONSUME_MESSAGE\x10\xe0\xd4'
        b'\x03*\xad\x01\n\x08Language\x12\x18\n\x14LANGUA'
        b'GE_UNSPECIFIED\x10\x00\x12\x08\n\x04JAVA'
        b'\x10\x01\x12\x07\n\x03CPP\x10\x02\x12\x0b\n\x07DOT_NET\x10\x03'
        b'\x12\n\n\x06GOLANG\x10\x04\x12\x08\n\x04RUST\x10\x05\x12\n'
        b'\n\x06PYTHON\x10\x06\x12\x07\n\x03PHP\x10\x07\x12\x0b\n\x07N'
        b'ODE_JS\x10\x08\x12\x08\n\x04RUBY\x10\t\x12\x0f\n\x0bOB'
        b'JECTIVE_C\x10\n\x12\x08\n\x04DART\x10\x0b\x12\n\n'
        b'\x06KOTLIN\x10\x0c*d\n\x16LiteSubscri'
        b'ptionAction\x12\x0f\n\x0bPARTIAL_A'
        b'DD\x10\x00\x12\x12\n\x0ePARTIAL_REMOVE\x10\x01'
        b'\x12\x10\n\x0cCOMPLETE_ADD\x10\x02\x12\x13\n\x0fCO'
        b'MPLETE_REMOVE\x10\x03*:\n\x11Query'
        b'OffsetPolicy\x12\r\n\tBEGINNIN'
        b'G\x10\x00\x12\x07\n\x03END\x10\x01\x12\r\n\tTIMESTAM'
        b'P\x10\x02B;\n\x12apache.rocketmq.v'
        b'2B\x08MQDomainP\x01\xa0\x01\x01\xd8\x01\x01\xaa\x02\x12Ap'
        b'ache.Rocketmq.V2b\x06proto3'
    ),
    (
        b'\n apache/rocketmq/v2/ser'
        b'vice.proto\x12\x12apache.rocke'
        b'tmq.v2\x1a\x1egoogle/protobuf/'
        b'duration.proto\x1a\x1fgoogle/p'
        b'rotobuf/timestamp.proto\x1a'
        b'#apache/rocketmq/v2/defi'
        b'nition.proto"\x84\x01\n\x11QueryRo'
        b'uteRequest\x122\n\x05topic\x18\x01 \x01('
        b'\x0b2\x1c.apache.rocketmq.v2.R'
        b'esourceR\x05topic\x12;\n\tendpoi'
        b'nts\x18\x02 \x01(\x0b2\x1d.apache.rocke'
        b'tmq.v2.EndpointsR\tendpoi'
        b'nts"\x91\x01\n\x12QueryRouteRespon'
        b'se\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apa'
        b'che.rocketmq.v2.StatusR\x06'
        b'status\x12G\n\x0emessage_queues'
        b'\x18\x02 \x03(\x0b2 .apache.rocketmq'
        b'.v2.MessageQueueR\rmessag'
        b'eQueues"M\n\x12SendMessageRe'
        b'quest\x127\n\x08messages\x18\x01 \x03(\x0b2'
        b'\x1b.apache.rocketmq.v2.Mes'
        b'sageR\x08messages"\xc8\x01\n\x0fSendR'
        b'esultEntry\x122\n\x06status\x18\x01 \x01'
        b'(\x0b2\x1a.apache.rocketmq.v2.'
        b'StatusR\x06status\x12\x1d\n\nmessag'
        b'e_id\x18\x02 \x01(\tR\tmessageId\x12%\n'
        b'\x0etransaction_id\x18\x03 \x01(\tR\rt'
        b'ransactionId\x12\x16\n\x06offset\x18\x04'
        b' \x01(\x03R\x06offset\x12#\n\rrecall_h'
        b'andle\x18\x05 \x01(\tR\x0crecallHandl'
        b'e"\x88\x01\n\x13SendMessageRespons'
        b'e\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apac'
        b'he.rocketmq.v2.StatusR\x06s'
        b'tatus\x12=\n\x07entries\x18\x02 \x03(\x0b2#'
        b'.apache.rocketmq.v2.Send'
        b'ResultEntryR\x07entries"\xbd\x01\n'
        b'\x16QueryAssignmentRequest\x12'
        b'2\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.'
        b'rocketmq.v2.ResourceR\x05to'
        b'pic\x122\n\x05group\x18\x02 \x01(\x0b2\x1c.apa'
        b'che.rocketmq.v2.Resource'
        b'R\x05group\x12;\n\tendpoints\x18\x03 \x01'
        b'(\x0b2\x1d.apache.rocketmq.v2.'
        b'EndpointsR\tendpoints"\x8f\x01\n'
        b'\x17QueryAssignmentResponse'
        b'\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apach'
        b'e.rocketmq.v2.StatusR\x06st'
        b'atus\x12@\n\x0bassignments\x18\x02 \x03('
        b'\x0b2\x1e.apache.rocketmq.v2.A'
        b'ssignmentR\x0bassignments"\xa7'
        b'\x04\n\x15ReceiveMessageRequest'
        b'\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apache'
        b'.rocketmq.v2.ResourceR\x05g'
        b'roup\x12E\n\rmessage_queue\x18\x02 '
        b'\x01(\x0b2 .apache.rocketmq.v2'
        b'.MessageQueueR\x0cmessageQu'
        b'eue\x12Q\n\x11filter_expression'
        b'\x18\x03 \x01(\x0b2$.apache.rocketmq'
        b'.v2.FilterExpressionR\x10fi'
        b'lterExpression\x12\x1d\n\nbatch_'
        b'size\x18\x04 \x01(\x05R\tbatchSize\x12M\n'
        b'\x12invisible_duration\x18\x05 \x01('
        b'\x0b2\x19.google.protobuf.Dura'
        b'tionH\x00R\x11invisibleDuratio'
        b'n\x88\x01\x01\x12\x1d\n\nauto_renew\x18\x06 \x01(\x08'
        b'R\tautoRenew\x12P\n\x14long_poll'
        b'ing_timeout\x18\x07 \x01(\x0b2\x19.goog'
        b'le.protobuf.DurationH\x01R\x12'
        b'longPollingTimeout\x88\x01\x01\x12"\n'
        b'\nattempt_id\x18\x08 \x01(\tH\x02R\tatt'
        b'emptId\x88\x01\x01B\x15\n\x13_invisible_'
        b'durationB\x17\n\x15_long_pollin'
        b'g_timeoutB\r\n\x0b_attempt_id'
        b'"\xdf\x01\n\x16ReceiveMessageRespo'
        b'nse\x124\n\x06status\x18\x01 \x01(\x0b2\x1a.ap'
        b'ache.rocketmq.v2.StatusH'
        b'\x00R\x06status\x127\n\x07message\x18\x02 \x01'
        b'(\x0b2\x1b.apache.rocketmq.v2.'
        b'MessageH\x00R\x07message\x12K\n\x12de'
        b'livery_timestamp\x18\x03 \x01(\x0b2\x1a'
        b'.google.protobuf.Timesta'
        b'mpH\x00R\x11deliveryTimestampB'
        b'\t\n\x07content"\x8a\x01\n\x0fAckMessag'
        b'eEntry\x12\x1d\n\nmessage_id\x18\x01 \x01'
        b'(\tR\tmessageId\x12%\n\x0ereceipt'
        b'_handle\x18\x02 \x01(\tR\rreceiptHa'
        b'ndle\x12"\n\nlite_topic\x18\x03 \x01(\t'
        b'H\x00R\tliteTopic\x88\x01\x01B\r\n\x0b_lit'
        b'e_topic"\xba\x01\n\x11AckMessageRe'
        b'quest\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.a'
        b'pache.rocketmq.v2.Resour'
        b'ceR\x05group\x122\n\x05topic\x18\x02 \x01(\x0b'
        b'2\x1c.apache.rocketmq.v2.Re'
        b'sourceR\x05topic\x12=\n\x07entries'
        b'\x18\x03 \x03(\x0b2#.apache.rocketmq'
        b'.v2.AckMessageEntryR\x07ent'
        b'ries"\x91\x01\n\x15AckMessageResul'
        b'tEntry\x12\x1d\n\nmessage_id\x18\x01 \x01'
        b'(\tR\tmessageId\x12%\n\x0ereceipt'
        b'_handle\x18\x02 \x01(\tR\rreceiptHa'
        b'ndle\x122\n\x06status\x18\x03 \x01(\x0b2\x1a.a'
        b'pache.rocketmq.v2.Status'
        b'R\x06status"\x8d\x01\n\x12AckMessageR'
        b'esponse\x122\n\x06status\x18\x01 \x01(\x0b2'
        b'\x1a.apache.rocketmq.v2.Sta'
        b'tusR\x06status\x12C\n\x07entries\x18\x02'
        b' \x03(\x0b2).apache.rocketmq.v'
        b'2.AckMessageResultEntryR'
        b'\x07entries"\xe8\x02\n&ForwardMess'
        b'ageToDeadLetterQueueRequ'
        b'est\x122\n\x05group\x18\x01 \x01(\x0b2\x1c.apa'
        b'che.rocketmq.v2.Resource'
        b'R\x05group\x122\n\x05topic\x18\x02 \x01(\x0b2\x1c'
        b'.apache.rocketmq.v2.Reso'
        b'urceR\x05topic\x12%\n\x0ereceipt_h'
        b'andle\x18\x03 \x01(\tR\rreceiptHand'
        b'le\x12\x1d\n\nmessage_id\x18\x04 \x01(\tR\t'
        b'messageId\x12)\n\x10delivery_at'
        b'tempt\x18\x05 \x01(\x05R\x0fdeliveryAtt'
        b'empt\x122\n\x15max_delivery_att'
        b'empts\x18\x06 \x01(\x05R\x13maxDelivery'
        b'Attempts\x12"\n\nlite_topic\x18\x07'
        b' \x01(\tH\x00R\tliteTopic\x88\x01\x01B\r\n\x0b'
        b'_lite_topic"]\n\'ForwardMe'
        b'ssageToDeadLetterQueueRe'
        b'sponse\x122\n\x06status\x18\x01 \x01(\x0b2\x1a'
        b'.apache.rocketmq.v2.Stat'
        b'usR\x06status"\x96\x01\n\x10Heartbeat'
        b'Request\x127\n\x05group\x18\x01 \x01(\x0b2\x1c'
        b'.apache.rocketmq.v2.Reso'
        b'urceH\x00R\x05group\x88\x01\x01\x12?\n\x0bclie'
        b'nt_type\x18\x02 \x01(\x0e2\x1e.apache.r'
        b'ocketmq.v2.ClientTypeR\nc'
        b'lientTypeB\x08\n\x06_group"G\n\x11H'
        b'eartbeatResponse\x122\n\x06stat'
        b'us\x18\x01 \x01(\x0b2\x1a.apache.rocket'
        b'mq.v2.StatusR\x06status"\xc0\x02\n'
        b'\x15EndTransactionRequest\x122'
        b'\n\x05topic\x18\x01 \x01(\x0b2\x1c.apache.r'
        b'ocketmq.v2.ResourceR\x05top'
        b'ic\x12\x1d\n\nmessage_id\x18\x02 \x01(\tR\t'
        b'messageId\x12%\n\x0etransaction'
        b'_id\x18\x03 \x01(\tR\rtransactionId'
        b'\x12I\n\nresolution\x18\x04 \x01(\x0e2).a'
        b'pache.rocketmq.v2.Transa'
        b'ctionResolutionR\nresolut'
        b'ion\x12=\n\x06source\x18\x05 \x01(\x0e2%.ap'
        b'ache.rocketmq.v2.Transac'
        b'tionSourceR\x06source\x12#\n\rtr'
        b'ace_context\x18\x06 \x01(\tR\x0ctrace'
        b'Context"L\n\x16EndTransactio'
        b'nResponse\x122\n\x06status\x18\x01 \x01('
        b'\x0b2\x1a.apache.rocketmq.v2.S'
        b'tatusR\x06status"4\n\x1cPrintTh'
        b'readStackTraceCommand\x12\x14\n'
        b'\x05nonce\x18\x01 \x01(\tR\x05nonce"1\n\x19R'
        b'econnectEndpointsCommand'
        b'\x12\x14\n\x05nonce\x18\x01 \x01(\tR\x05nonce"r'
        b'\n\x10ThreadStackTrace\x12\x14\n\x05no'
        b'nce\x18\x01 \x01(\tR\x05nonce\x121\n\x12thre'
        b'ad_stack_trace\x18\x02 \x01(\tH\x00R\x10'
        b'threadStackTrace\x88\x01\x01B\x15\n\x13_'
        b'thread_stack_trace"c\n\x14Ve'
        b'rifyMessageCommand\x12\x14\n\x05no'
        b'nce\x18\x01 \x01(\tR\x05nonce\x125\n\x07mess'
        b'age\x18\x02 \x01(\x0b2\x1b.apache.rocke'
        b'tmq.v2.MessageR\x07message"'
        b'+\n\x13VerifyMessageResult\x12\x14'
        b'\n\x05nonce\x18\x01 \x01(\tR\x05nonce"\x81\x01\n'
        b'!RecoverOrphanedTransact'
        b'ionCommand\x125\n\x07message\x18\x01 '
        b'\x01(\x0b2\x1b.apache.rocketmq.v2'
        b'.MessageR\x07message\x12%\n\x0etra'
        b'nsaction_id\x18\x02 \x01(\tR\rtrans'
        b'actionId"=\n\x1cNotifyUnsubs'
        b'cribeLiteCommand\x12\x1d\n\nlite'
        b'_topic\x18\x01 \x01(\tR\tliteTopic"'
        b'\xa7\x07\n\x10TelemetryCommand\x127\n\x06'
        b'status\x18\x01 \x01(\x0b2\x1a.apache.ro'
        b'cketmq.v2.StatusH\x01R\x06stat'
        b'us\x88\x01\x01\x12:\n\x08settings\x18\x02 \x01(\x0b2'
        b'\x1c.apache.rocketmq.v2.Set'
        b'tingsH\x00R\x08settings\x12T\n\x12thr'
        b'ead_stack_trace\x18\x03 \x01(\x0b2$.'
        b'apache.rocketmq.v2.Threa'
        b'dStackTraceH\x00R\x10threadSta'
        b'ckTrace\x12]\n\x15verify_messag'
        b"e_result\x18\x04 \x01(\x0b2'.apache."
        b'rocketmq.v2.VerifyMessag'
        b'eResultH\x00R\x13verifyMessage'
        b'Result\x12\x88\x01\n$recover_orpha'
        b'ned_transaction_command\x18'
        b'\x05 \x01(\x0b25.apache.rocketmq.'
        b'v2.RecoverOrphanedTransa'
        b'ctionCommandH\x00R!recoverO'
        b'rphanedTransactionComman'
        b'd\x12z\n print_thread_stack_'
        b'trace_command\x18\x06 \x01(\x0b20.ap'
        b'ache.rocketmq.v2.PrintTh'
        b'readStackTraceCommandH\x00R'
        b'\x1cprintThreadStackTraceCo'
        b'mmand\x12`\n\x16verify_message_'
        b'command\x18\x07 \x01(\x0b2(.apache.r'
        b'ocketmq.v2.VerifyMessage'
        b'CommandH\x00R\x14verifyMessage'
        b'Command\x12o\n\x1breconnect_end'
        b'points_command\x18\x08 \x01(\x0b2-.a'
        b'pache.rocketmq.v2.Reconn'
        b'ectEndpointsCommandH\x00R\x19r'
        b'econnectEndpointsCommand'
        b'\x12y\n\x1fnotify_unsubscribe_l'
        b'ite_command\x18\t \x01(\x0b20.apac'
        b'he.rocketmq.v2.NotifyUns'
        b'ubscribeLiteCommandH\x00R\x1cn'
        b'otifyUnsubscribeLiteComm'
        b'andB\t\n\x07commandB\t\n\x07_statu'
        b's"c\n\x1eNotifyClientTermina'
        b'tionRequest\x127\n\x05group\x18\x01 \x01'
        b'(\x0b2\x1c.apache.rocketmq.v2.'
        b'ResourceH\x00R\x05group\x88\x01\x01B\x08\n\x06'
        b'_group"U\n\x1fNotifyClientTe'
        b'rminationResponse\x122\n\x06sta'
        b'tus\x18\x01 \x01(\x0b2\x1a.apache.rocke'
        b'tmq.v2.StatusR\x06status"\xf6\x02'
        b'\n\x1eChangeInvisibleDuratio'
        b'nRequest\x122\n\x05group\x18\x01 \x01(\x0b2'
        b'\x1c.apache.rocketmq.v2.Res'
        b'ourceR\x05group\x122\n\x05topic\x18\x02 '
        b'\x01(\x0b2\x1c.apache.rocketmq.v2'
        b'.ResourceR\x05topic\x12%\n\x0erece'
        b'ipt_handle\x18\x03 \x01(\tR\rreceip'
        b'tHandle\x12H\n\x12invisible_dur'
        b'ation\x18\x04 \x01(\x0b2\x19.google.pro'
        b'tobuf.DurationR\x11invisibl'
        b'eDuration\x12\x1d\n\nmessage_id\x18'
        b'\x05 \x01(\tR\tmessageId\x12"\n\nlite'
        b'_topic\x18\x06 \x01(\tH\x00R\tliteTopi'
        b'c\x88\x01\x01\x12\x1d\n\x07suspend\x18\x07 \x01(\x08H\x01R'
        b'\x07suspend\x88\x01\x01B\r\n\x0b_lite_top'
        b'icB\n\n\x08_suspend"|\n\x1fChange'
        b'InvisibleDurationRespons'
        b'e\x122\n\x06status\x18\x01 \x01(\x0b2\x1a.apac'
        b'he.rocketmq.v2.StatusR\x06s'
        b'tatus\x12%\n\x0ereceipt_handle\x18'
        b'\x02 \x01(\tR\rreceiptHandle"\xe6\x02\n'
        b'\x12PullMessageRequest\x122\n\x05g'
        b'roup\x18\x01 \x01(\x0b2\x1c.apache.rock'
        b'etmq.v2.ResourceR\x05group\x12'
        b'E\n\rmessage_queue\x18\x02 \x01(\x0b2 '
        b'.apache.rocketmq.v2.Mess'
        b'ageQueueR\x0cmessageQueue\x12\x16'
        b'\n\x06offset\x18\x03 \x01(\x03R\x06offset\x12\x1d'
        b'\n\nbatch_size\x18\x04 \x01(\x05R\tbatc'
        b'hSize\x12Q\n\x11filter_expressi'
        b'on\x18\x05 \x01(\x0b2$.apache.rocket'
        b'mq.v2.FilterExpressionR\x10'
        b'filterExpression\x12K\n\x14long'
        b'_polling_timeout\x18\x06 \x01(\x0b2\x19'
        b'.google.protobuf.Duratio'
        b'nR\x12longPollingTimeout"\xb2\x01'
        b'\n\x13PullMessageResponse\x124\n'
        b'\x06status\x18\x01 \x01(\x0b2\x1a.apache.r'
        b'ocketmq.v2.StatusH\x00R\x06sta'
        b'tus\x127\n\x07message\x18\x02 \x01(\x0b2\x1b.a'
        b'pache.rocketmq.v2.Messag'
        b'eH\x00R\x07message\x12!\n\x0bnext_off'
        b'set\x18\x03 \x01(\x03H\x00R\nnextOffsetB'
        b'\t\n\x07content"\xa8\x01\n\x13UpdateOff'
        b'setRequest\x122\n\x05group\x18\x01 \x01('
        b'\x0b2\x1c.apache.rocketmq.v2.R'
        b'esourceR\x05group\x12E\n\rmessag'
        b'e_queue\x18\x02 \x01(\x0b2 .apache.r'
        b'ocketmq.v2.MessageQueueR'
        b'\x0cmessageQueue\x12\x16\n\x06offset\x18'
        b'\x03 \x01(\x03R\x06offset"J\n\x14UpdateO'
        b'ffsetResponse\x122\n\x06status\x18'
        b'\x01 \x01(\x0b2\x1a.apache.rocketmq.'
        b'v2.StatusR\x06status"\x8d\x01\n\x10Ge'
        b'tOffsetRequest\x122\n\x05group\x18'
        b'\x01 \x01(\x0b2\x1c.apache.rocketmq.'
        b'v2.ResourceR\x05group\x12E\n\rme'
        b'ssage_queue\x18\x02 \x01(\x0b2 .apac'
        b'he.rocketmq.v2.MessageQu'
        b'eueR\x0cmessageQueue"_\n\x11Get'
        b'OffsetResponse\x122\n\x06status'
        b'\x18\x01 \x01(\x0b2\x1a.apache.rocketmq'
        b'.v2.StatusR\x06status\x12\x16\n\x06of'
        b'fset\x18\x02 \x01(\x03R\x06offset"\xff\x01\n\x12Q'
        b'ueryOffsetRequest\x12E\n\rmes'
        b'sage_queue\x18\x01 \x01(\x0b2 .apach'
        b'e.rocketmq.v2.MessageQue'
        b'ueR\x0cmessageQueue\x12U\n\x13quer'
        b'y_offset_policy\x18\x02 \x01(\x0e2%.'
        b'apache.rocketmq.v2.Query'
        b'OffsetPolicyR\x11queryOffse'
        b'tPolicy\x12=\n\ttimestamp\x18\x03 \x01'
        b'(\x0b2\x1a.google.protobuf.Tim'
        b'estampH\x00R\ttimestamp\x88\x01\x01B\x0c'
        b'\n\n_timestamp"a\n\x13QueryOff'
        b'setResponse\x122\n\x06status\x18\x01 '
        b'\x01(\x0b2\x1a.apache.rocketmq.v2'
        b'.StatusR\x06status\x12\x16\n\x06offse'
        b't\x18\x02 \x01(\x03R\x06offset"o\n\x14Recal'
        b'lMessageRequest\x122\n\x05topic'
        b'\x18\x01 \x01(\x0b2\x1c.apache.rocketmq'
        b'.v2.ResourceR\x05topic\x12#\n\rr'
        b'ecall_handle\x18\x02 \x01(\tR\x0creca'
        b'llHandle"j\n\x15RecallMessag'
        b'eResponse\x122\n\x06status\x18\x01 \x01('
        b'\x0b2\x1a.apache.rocketmq.v2.S'
        b'tatusR\x06status\x12\x1d\n\nmessage'
        b'_id\x18\x02 \x01(\tR\tmessageId"\xf8\x02\n'
        b'\x1bSyncLiteSubscriptionReq'
        b'uest\x12B\n\x06action\x18\x01 \x01(\x0e2*.a'
        b'pache.rocketmq.v2.LiteSu'
        b'bscriptionActionR\x06action'
        b'\x122\n\x05topic\x18\x02 \x01(\x0b2\x1c.apache'
        b'.rocketmq.v2.ResourceR\x05t'
        b'opic\x122\n\x05group\x18\x03 \x01(\x0b2\x1c.ap'
        b'ache.rocketmq.v2.Resourc'
        b'eR\x05group\x12$\n\x0elite_topic_s'
        b'et\x18\x04 \x03(\tR\x0cliteTopicSet\x12\x1d'
        b'\n\x07version\x18\x05 \x01(\x03H\x00R\x07versi'
        b'on\x88\x01\x01\x12J\n\roffset_option\x18\x06'
        b' \x01(\x0b2 .apache.rocketmq.v'
        b'2.OffsetOptionH\x01R\x0coffset'
        b'Option\x88\x01\x01B\n\n\x08_versionB\x10\n'
        b'\x0e_offset_option"R\n\x1cSyncL'
        b'iteSubscriptionResponse\x12'
        b'2\n\x06status\x18\x01 \x01(\x0b2\x1a.apache'
        b'.rocketmq.v2.StatusR\x06sta'
        b'tus2\xcc\x0e\n\x10MessagingService'
        b'\x12]\n\nQueryRoute\x12%.apache.'
        b'rocketmq.v2.QueryRouteRe'
        b'quest\x1a&.apache.rocketmq.'
        b'v2.QueryRouteResponse"\x00\x12'
        b'Z\n\tHeartbeat\x12$.apache.ro'
        b'cketmq.v2.HeartbeatReque'
        b'st\x1a%.apache.rocketmq.v2.'
        b'HeartbeatResponse"\x00\x12`\n\x0bS'
        b'endMessage\x12&.apache.rock'
        b'etmq.v2.SendMessageReque'
        b"st\x1a'.apache.rocketmq.v2."
        b'SendMessageResponse"\x00\x12l\n'
        b'\x0fQueryAssignment\x12*.apach'
        b'e.rocketmq.v2.QueryAssig'
        b'nmentRequest\x1a+.apache.ro'
        b'cketmq.v2.QueryAssignmen'
        b'tResponse"\x00\x12k\n\x0eReceiveMe'
        b'ssage\x12).apache.rocketmq.'
        b'v2.ReceiveMessageRequest'
        b'\x1a*.apache.rocketmq.v2.Re'
        b'ceiveMessageResponse"\x000\x01'
        b'\x12]\n\nAckMessage\x12%.apache.'
        b'rocketmq.v2.AckMessageRe'
        b'quest\x1a&.apache.rocketmq.'
        b'v2.AckMessageResponse"\x00\x12'
        b'\x9c\x01\n\x1fForwardMessageToDead'
        b'LetterQueue\x12:.apache.roc'
        b'ketmq.v2.ForwardMessageT'
        b'oDeadLetterQueueRequest\x1a'
        b';.apache.rocketmq.v2.For'
        b'wardMessageToDeadLetterQ'
        b'ueueResponse"\x00\x12b\n\x0bPullMe'
        b'ssage\x12&.apache.rocketmq.'
        b"v2.PullMessageRequest\x1a'."
        b'apache.rocketmq.v2.PullM'
        b'essageResponse"\x000\x01\x12c\n\x0cUp'
        b"dateOffset\x12'.apache.rock"
        b'etmq.v2.UpdateOffsetRequ'
        b'est\x1a(.apache.rocketmq.v2'
        b'.UpdateOffsetResponse"\x00\x12'
        b'Z\n\tGetOffset\x12$.apache.ro'
        b'cketmq.v2.GetOffsetReque'
        b'st\x1a%.apache.rocketmq.v2.'
        b'GetOffsetResponse"\x00\x12`\n\x0bQ'
        b'ueryOffset\x12&.apache.rock'
        b'etmq.v2.QueryOffsetReque'
        b"st\x1a'.apache.rocketmq.v2."
        b'QueryOffsetResponse"\x00\x12i\n'
        b'\x0eEndTransaction\x12).apache'
        b'.rocketmq.v2.EndTransact'
        b'ionRequest\x1a*.apache.rock'
        b'etmq.v2.EndTransactionRe'
        b'sponse"\x00\x12]\n\tTelemetry\x12$.'
        b'apache.rocketmq.v2.Telem'
        b'etryCommand\x1a$.apache.roc'
        b'ketmq.v2.TelemetryComman'
        b'd"\x00(\x010\x01\x12\x84\x01\n\x17NotifyClient'
        b'Termination\x122.apache.roc'
        b'ketmq.v2.NotifyClientTer'
        b'minationRequest\x1a3.apache'
        b'.rocketmq.v2.NotifyClien'
        b'tTerminationResponse"\x00\x12\x84'
        b'\x01\n\x17ChangeInvisibleDurati'
        b'on\x122.apache.rocketmq.v2.'
        b'ChangeInvisibleDurationR'
        b'equest\x1a3.apache.rocketmq'
        b'.v2.ChangeInvisibleDurat'
        b'ionResponse"\x00\x12f\n\rRecallM'
        b'essage\x12(.apache.rocketmq'
        b'.v2.RecallMessageRequest'
        b'\x1a).apache.rocketmq.v2.Re'
        b'callMessageResponse"\x00\x12{\n'
        b'\x14SyncLiteSubscription\x12/.'
        b'apache.rocketmq.v2.SyncL'
        b'iteSubscriptionRequest\x1a0'
        b'.apache.rocketmq.v2.Sync'
        b'LiteSubscriptionResponse'
        b'"\x00B<\n\x12apache.rocketmq.v2'
        b'B\tMQServiceP\x01\xa0\x01\x01\xd8\x01\x01\xaa\x02\x12Ap'
        b'ache.Rocketmq.V2b\x06proto3'
    ),
):
    _POOL.AddSerializedFile(_file)


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"apache.rocketmq.v2.{name}"))


class Method(NamedTuple):
    """A method of the service, and its messages."""

    name: str
    request: Any
    response: Any
    takes_stream: bool
    gives_stream: bool


class TransactionResolution(IntEnum):
    """The enumeration TransactionResolution."""

    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class TransactionSource(IntEnum):
    """The enumeration TransactionSource."""

    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2


class Permission(IntEnum):
    """The enumeration Permission."""

    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class FilterType(IntEnum):
    """The enumeration FilterType."""

    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2


class AddressScheme(IntEnum):
    """The enumeration AddressScheme."""

    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3


class MessageType(IntEnum):
    """The enumeration MessageType."""

    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class DigestType(IntEnum):
    """The enumeration DigestType."""

    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3


class ClientType(IntEnum):
    """The enumeration ClientType."""

    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Encoding(IntEnum):
    """The enumeration Encoding."""

    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2


class Language(IntEnum):
    """The enumeration Language."""

    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8
    RUBY = 9
    OBJECTIVE_C = 10
    DART = 11
    KOTLIN = 12


class LiteSubscriptionAction(IntEnum):
    """The enumeration LiteSubscriptionAction."""

    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3


class QueryOffsetPolicy(IntEnum):
    """The enumeration QueryOffsetPolicy."""

    BEGINNING = 0
    END = 1
    TIMESTAMP = 2


Timestamp = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("google.protobuf.Timestamp"))
Duration = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("google.protobuf.Duration"))
FilterExpression = _message("FilterExpression")
RetryPolicy = _message("RetryPolicy")
ExponentialBackoff = _message("ExponentialBackoff")
CustomizedBackoff = _message("CustomizedBackoff")
Resource = _message("Resource")
SubscriptionEntry = _message("SubscriptionEntry")
Address = _message("Address")
Endpoints = _message("Endpoints")
Broker = _message("Broker")
MessageQueue = _message("MessageQueue")
Digest = _message("Digest")
SystemProperties = _message("SystemProperties")
DeadLetterQueue = _message("DeadLetterQueue")
Message = _message("Message")
Assignment = _message("Assignment")
Status = _message("Status")
UA = _message("UA")
Settings = _message("Settings")
Publishing = _message("Publishing")
Subscription = _message("Subscription")
Metric = _message("Metric")
OffsetOption = _message("OffsetOption")
QueryRouteRequest = _message("QueryRouteRequest")
QueryRouteResponse = _message("QueryRouteResponse")
SendMessageRequest = _message("SendMessageRequest")
SendResultEntry = _message("SendResultEntry")
SendMessageResponse = _message("SendMessageResponse")
QueryAssignmentRequest = _message("QueryAssignmentRequest")
QueryAssignmentResponse = _message("QueryAssignmentResponse")
ReceiveMessageRequest = _message("ReceiveMessageRequest")
ReceiveMessageResponse = _message("ReceiveMessageResponse")
AckMessageEntry = _message("AckMessageEntry")
AckMessageRequest = _message("AckMessageRequest")
AckMessageResultEntry = _message("AckMessageResultEntry")
AckMessageResponse = _message("AckMessageResponse")
ForwardMessageToDeadLetterQueueRequest = _message("ForwardMessageToDeadLetterQueueRequest")
ForwardMessageToDeadLetterQueueResponse = _message("ForwardMessageToDeadLetterQueueResponse")
HeartbeatRequest = _message("HeartbeatRequest")
HeartbeatResponse = _message("HeartbeatResponse")
EndTransactionRequest = _message("EndTransactionRequest")
EndTransactionResponse = _message("EndTransactionResponse")
PrintThreadStackTraceCommand = _message("PrintThreadStackTraceCommand")
ReconnectEndpointsCommand = _message("ReconnectEndpointsCommand")
ThreadStackTrace = _message("ThreadStackTrace")
VerifyMessageCommand = _message("VerifyMessageCommand")
VerifyMessageResult = _message("VerifyMessageResult")
RecoverOrphanedTransactionCommand = _message("RecoverOrphanedTransactionCommand")
NotifyUnsubscribeLiteCommand = _message("NotifyUnsubscribeLiteCommand")
TelemetryCommand = _message("TelemetryCommand")
NotifyClientTerminationRequest = _message("NotifyClientTerminationRequest")
NotifyClientTerminationResponse = _message("NotifyClientTerminationResponse")
ChangeInvisibleDurationRequest = _message("ChangeInvisibleDurationRequest")
ChangeInvisibleDurationResponse = _message("ChangeInvisibleDurationResponse")
PullMessageRequest = _message("PullMessageRequest")
PullMessageResponse = _message("PullMessageResponse")
UpdateOffsetRequest = _message("UpdateOffsetRequest")
UpdateOffsetResponse = _message("UpdateOffsetResponse")
GetOffsetRequest = _message("GetOffsetRequest")
GetOffsetResponse = _message("GetOffsetResponse")
QueryOffsetRequest = _message("QueryOffsetRequest")
QueryOffsetResponse = _message("QueryOffsetResponse")
RecallMessageRequest = _message("RecallMessageRequest")
RecallMessageResponse = _message("RecallMessageResponse")
SyncLiteSubscriptionRequest = _message("SyncLiteSubscriptionRequest")
SyncLiteSubscriptionResponse = _message("SyncLiteSubscriptionResponse")

METHODS = (
    Method("QueryRoute", QueryRouteRequest, QueryRouteResponse, False, False),
    Method("Heartbeat", HeartbeatRequest, HeartbeatResponse, False, False),
    Method("SendMessage", SendMessageRequest, SendMessageResponse, False, False),
    Method("QueryAssignment", QueryAssignmentRequest, QueryAssignmentResponse, False, False),
    Method("ReceiveMessage", ReceiveMessageRequest, ReceiveMessageResponse, False, True),
    Method("AckMessage", AckMessageRequest, AckMessageResponse, False, False),
    Method("ForwardMessageToDeadLetterQueue", ForwardMessageToDeadLetterQueueRequest, ForwardMessageToDeadLetterQueueResponse, False, False),
    Method("PullMessage", PullMessageRequest, PullMessageResponse, False, True),
    Method("UpdateOffset", UpdateOffsetRequest, UpdateOffsetResponse, False, False),
    Method("GetOffset", GetOffsetRequest, GetOffsetResponse, False, False),
    Method("QueryOffset", QueryOffsetRequest, QueryOffsetResponse, False, False),
    Method("EndTransaction", EndTransactionRequest, EndTransactionResponse, False, False),
    Method("Telemetry", TelemetryCommand, TelemetryCommand, True, True),
    Method("NotifyClientTermination", NotifyClientTerminationRequest, NotifyClientTerminationResponse, False, False),
    Method("ChangeInvisibleDuration", ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, False, False),
    Method("RecallMessage", RecallMessageRequest, RecallMessageResponse, False, False),
    Method("SyncLiteSubscription", SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse, False, False),
)
